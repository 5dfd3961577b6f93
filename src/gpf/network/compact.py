"""The same function in a smaller dense model: units that pruning has cut off are really gone.

A unit without incoming weights puts out a constant, which is folded into the biases that follow; one without outgoing
weights is not heard. Removing units may cut off others, so this goes on until nothing more can go.
"""

import copy
from collections import Counter

import torch
from torch import Tensor, nn

from gpf.network import surgery
from gpf.network.hooks import remove_hooks
from gpf.network.mlp import MLP

_ELEMENTWISE = {nn.ReLU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.LeakyReLU, nn.ELU, nn.Identity, nn.Dropout}


class _Link:
    """Two maps, one after the other, with elementwise functions between: units of the first can go."""

    def __init__(self, producer: nn.Module, between: list[nn.Module], consumer: nn.Module) -> None:
        self.producer, self.between, self.consumer = producer, between, consumer

    def shrink(self) -> int:
        """Remove what units can be removed; returns how many."""
        incoming, outgoing = _matrix(self.producer), _matrix(self.consumer).transpose(0, 1)
        silent = (incoming == 0).flatten(1).all(1)
        unheard = (outgoing == 0).flatten(1).all(1)
        constants = _bias(self.producer).clone()
        for function in self.between:
            if not isinstance(function, nn.Dropout):
                constants = function(constants)
        if not _folds_exactly(self.consumer):
            silent &= constants == 0
        going = silent | unheard
        if going.all():
            going[0] = False  # a layer keeps one unit
        if not going.any():
            return 0
        fold = going & silent & ~unheard
        if fold.any():
            shift = (outgoing[fold].flatten(2).sum(2) if outgoing.dim() > 2 else outgoing[fold]).T @ constants[fold]
            _set_bias(self.consumer, _bias(self.consumer) + shift)
        _keep_outputs(self.producer, ~going)
        _keep_inputs(self.consumer, ~going)
        return int(going.sum())


def compact(model: nn.Module, stack: str) -> nn.Module:
    """A copy of a model with all units of a stack removed that its pruned weights have cut off.

    Knows chains of Linear or Conv2d blocks with elementwise functions, where the stack is a `Sequential` (a
    `ModuleList` may be run in any way) or the model an `MLP`, up to the map that follows the stack; and the
    feed-forward parts of torch's and Hugging Face's transformer blocks. Other blocks are copied as they are.
    """
    model = copy.deepcopy(model)
    remove_hooks(model)
    with torch.no_grad():
        links = _links(model, stack)
        while sum(link.shrink() for link in links):
            pass
    return model


def _links(model: nn.Module, stack: str) -> list[_Link]:
    """All pairs of maps between which units can go."""
    container = surgery.find_stack(model, stack)
    links = [link for block in container for link in _links_within(block)]
    if is_chain(model, stack):
        parts: list[nn.Module] = []
        for block in container:
            inside = _flat(block)
            parts += [block] if inside is None else inside
        links += _links_along(parts + _after(model, stack))
    # A map, or a weight, that the model uses in several places cannot be changed for one of them.
    modules = Counter(id(child) for module in model.modules() for child in module._modules.values())
    weights = Counter(id(module.weight) for module in model.modules() if _is_map(module))
    return [
        link
        for link in links
        if all(modules[id(m)] == weights[id(m.weight)] == 1 for m in (link.producer, link.consumer))
    ]


def is_chain(model: nn.Module, stack: str) -> bool:
    """Whether the blocks of a stack are known to run one after the other."""
    return type(model) is MLP or type(surgery.find_stack(model, stack)) is nn.Sequential


def _links_along(parts: list[nn.Module]) -> list[_Link]:
    links: list[_Link] = []
    producer: nn.Module | None = None
    between: list[nn.Module] = []
    for part in parts:
        if _is_map(part):
            if producer is not None and _fits(producer, part):
                links.append(_Link(producer, between, part))
            producer, between = part, []
        elif type(part) in _ELEMENTWISE:
            between = [*between, part]
        else:
            producer, between = None, []
    return links


def _links_within(block: nn.Module) -> list[_Link]:
    """The feed-forward parts of known transformer blocks, and of any Sequential inside a block."""
    links = []
    for module in block.modules():
        if isinstance(module, nn.TransformerEncoderLayer):
            function = module.activation
            wrapped = function if isinstance(function, nn.Module) else _Function(function)
            links.append(_Link(module.linear1, [wrapped], module.linear2))
        elif type(module).__name__ == "GPT2MLP":
            links.append(_Link(module.c_fc, [module.act], module.c_proj))  # type: ignore[list-item, arg-type]
        elif type(module) is nn.Sequential and module is not block:
            links += _links_along(list(module))
    return links


class _Function(nn.Module):
    def __init__(self, function) -> None:  # type: ignore[no-untyped-def]
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def _flat(block: nn.Module) -> list[nn.Module] | None:
    """The modules of a block that is a plain chain; None if it is not."""
    if _is_map(block) or type(block) in _ELEMENTWISE:
        return [block]
    if type(block) is not nn.Sequential:
        return None
    parts: list[nn.Module] = []
    for child in block:
        inside = _flat(child)
        parts += [child] if inside is None else inside
    return parts


def _after(model: nn.Module, stack: str) -> list[nn.Module]:
    """What follows the stack, as far as can be known: in our MLP its head, in a Sequential the next modules."""
    if type(model) is MLP:
        return [model.head]
    if not stack:
        return []
    path, _, name = stack.rpartition(".")
    owner = model.get_submodule(path)
    if type(owner) is not nn.Sequential:
        return []
    children = list(owner.named_children())
    place = [child for child, _ in children].index(name)
    following: list[nn.Module] = []
    for _, child in children[place + 1 :]:
        inside = _flat(child)
        if inside is None:
            break
        following += inside
    return following


def _is_map(module: nn.Module) -> bool:
    if hasattr(module, "parametrizations") or not isinstance(getattr(module, "weight", None), nn.Parameter):
        return False
    plain_conv = type(module) is nn.Conv2d and module.groups == 1
    return type(module) is nn.Linear or plain_conv or type(module).__name__ == "Conv1D"


def _fits(producer: nn.Module, consumer: nn.Module) -> bool:
    alike = isinstance(producer, nn.Conv2d) == isinstance(consumer, nn.Conv2d)
    return alike and _matrix(consumer).shape[1] == _matrix(producer).shape[0]


def _matrix(module: nn.Module) -> Tensor:
    """A map's weights as (outputs, inputs, ...)."""
    weight: Tensor = module.weight  # type: ignore[assignment]
    return weight.detach().T if type(module).__name__ == "Conv1D" else weight.detach()


def _bias(module: nn.Module) -> Tensor:
    bias = module.bias
    return bias.detach() if isinstance(bias, Tensor) else _matrix(module).new_zeros(len(_matrix(module)))


def _folds_exactly(module: nn.Module) -> bool:
    """Whether a constant input is a constant at every output: not at the borders of a padded convolution."""
    return not isinstance(module, nn.Conv2d) or module.padding in ("valid", (0, 0))


def _set_weight(module: nn.Module, matrix: Tensor) -> None:
    transposed = type(module).__name__ == "Conv1D"
    old = module.weight
    module.weight = nn.Parameter((matrix.T if transposed else matrix).contiguous(), old.requires_grad)  # type: ignore[arg-type]


def _set_bias(module: nn.Module, values: Tensor) -> None:
    requires_grad = module.weight.requires_grad
    module.bias = nn.Parameter(values.clone(), requires_grad)  # type: ignore[arg-type]


def _keep_outputs(module: nn.Module, keep: Tensor) -> None:
    had_bias = isinstance(module.bias, Tensor)
    bias = _bias(module)
    _set_weight(module, _matrix(module)[keep])
    if had_bias:
        _set_bias(module, bias[keep])
    _write_sizes(module)


def _keep_inputs(module: nn.Module, keep: Tensor) -> None:
    _set_weight(module, _matrix(module)[:, keep])
    _write_sizes(module)


def _write_sizes(module: nn.Module) -> None:
    """Bring the sizes that a module has written down in line with its weights."""
    outputs, inputs = _matrix(module).shape[:2]
    for name, size in (
        ("out_features", outputs),
        ("in_features", inputs),
        ("out_channels", outputs),
        ("in_channels", inputs),
        ("nf", outputs),
        ("nx", inputs),
    ):
        if hasattr(module, name):
            setattr(module, name, size)
