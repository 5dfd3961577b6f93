"""Captures the inputs and outputs of every weight layer of a torch model, for a probe batch."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from gpf.spectra.activations import Activation

WEIGHTED = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
"""Layers that are captured; in addition `Conv1D` of transformers, a linear layer with its weights transposed."""
SAMPLES = 1024
"""Maximum number of samples, or of positions of an image or a text."""


@dataclass(frozen=True)
class Captured:
    """One weight layer as a batch saw it. Samples are rows; the positions of a convolution are samples."""

    name: str
    module: nn.Module
    inputs: Tensor | None
    """(m, n0); None for a convolution, whose inputs overlap."""
    outputs: Tensor
    """(m, n1), before the activation."""
    activation: Activation
    """The next elementwise function of its output: a module, or `linear` for none that is known."""
    activated: Tensor
    """(m, n1), after it; where the next layer was given something else than this layer's output, that."""
    normalised: bool
    """Whether layer normalisation stood between."""
    predictable: bool
    """Whether nothing else stood between that a prediction does not know."""


def weight_matrix(module: nn.Module) -> Tensor:
    """The weights of a layer, one unit a row."""
    weight: Any = module.weight
    weight = weight.detach()
    if _is_transposed(module):
        weight = weight.T
    return (weight if weight.dtype in (torch.float32, torch.float64) else weight.float()).flatten(1)


def variances(module: nn.Module) -> tuple[float, float]:
    """Current sigma_w and sigma_b of a layer, about zero: weights have variance sigma_w^2 / inputs."""
    weight, bias = weight_matrix(module).double(), getattr(module, "bias", None)
    sigma_w = float(torch.sqrt(weight.square().mean() * weight.shape[1]))
    return sigma_w, 0.0 if bias is None else float(torch.sqrt(bias.detach().double().square().mean()))


def weighted_layers(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The linear and convolutional layers of a model, in order."""
    found = [(name, module) for name, module in model.named_modules() if _is_weighted(module)]
    if not found:
        raise ValueError(f"model must have a linear or convolutional layer, got {type(model).__name__}")
    yield from found


def check_weights(model: nn.Module) -> None:
    """Refuse weights that are not finite, by name."""
    for name, parameter in model.named_parameters():
        if not torch.isfinite(parameter).all():
            raise ValueError(f"model must have finite weights only, got others in {name}")


def capture(model: nn.Module, batch: Any, most: int = SAMPLES) -> list[Captured]:
    """Run a batch through a model, without changing it, and return what its weight layers did.

    A layer that is used several times appears as it was used last; one that is not used does not appear.
    """
    _check_batch(batch)
    check_weights(model)
    calls: dict[str, dict[str, Any]] = {}
    latest: list[str] = []

    def weighted(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
            calls.pop(name, None)
            convolves = isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d)
            calls[name] = {
                "inputs": None if convolves else _rows(args[0], module, most),
                "outputs": _rows(output, module, most), "activation": "linear", "normalised": False,
                "predictable": True, "module": module, "tensor": output,
            }  # fmt: skip
            calls[name]["activated"] = calls[name]["outputs"]
            latest[:] = [name]

        return hook

    def between(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if not latest or not isinstance(output, Tensor) or not args:
            return
        call = calls[latest[0]]
        if args[0] is not call["tensor"] or call["activation"] != "linear":
            return  # it works on something else: another branch, or a sum
        if isinstance(module, nn.Identity | nn.Dropout | nn.LayerNorm):
            call["tensor"] = output
            call["normalised"] |= isinstance(module, nn.LayerNorm)
        elif is_elementwise(module):
            call["activation"], call["activated"] = module, _rows(output, call["module"], most)
        else:
            call["predictable"] = False

    handles = [module.register_forward_hook(weighted(name)) for name, module in weighted_layers(model)]
    handles += [
        module.register_forward_hook(between)
        for module in model.modules()
        if not _is_weighted(module) and not list(module.children())
    ]
    try:
        with evaluating(model), torch.no_grad():
            model(*batch) if isinstance(batch, tuple | list) else model(batch)
    finally:
        for handle in handles:
            handle.remove()
    if not calls:
        raise ValueError("batch must reach a weight layer in the model's forward pass")
    for call, following in itertools.pairwise(calls.values()):
        inputs = following["inputs"]
        unknown = call["activation"] == "linear" and inputs is not None and inputs.shape == call["outputs"].shape
        if unknown and not torch.equal(inputs, call["outputs"]):  # a function that is no module, or a sum
            call["activated"], call["predictable"] = inputs, False
    return [
        Captured(
            name, call["module"], call["inputs"], call["outputs"], call["activation"], call["activated"],
            call["normalised"], call["predictable"],
        )
        for name, call in calls.items()
    ]  # fmt: skip


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """The model in evaluation mode, and afterwards every module as it was."""
    before = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in before:
            module.training = mode


def is_activation(module: nn.Module) -> bool:
    """Whether a module is one of torch's activations that work on each element alone."""
    return isinstance(
        module,
        nn.ReLU | nn.LeakyReLU | nn.ELU | nn.GELU | nn.SiLU | nn.Tanh | nn.Sigmoid | nn.Hardtanh | nn.Hardswish
        | nn.Mish | nn.Softplus | nn.SELU | nn.CELU,
    )  # fmt: skip


def is_elementwise(module: nn.Module) -> bool:
    """Whether a module without weights works on each element alone, tried out on a few."""
    if is_activation(module):
        return True
    if any(True for _ in module.parameters()) or any(True for _ in module.buffers()):
        return False
    x = torch.linspace(-2.0, 2.0, 7)
    try:
        whole = module(x)
        return bool(
            torch.allclose(module(x.flip(0)).flip(0), whole) and torch.allclose(module(x[2:3]), whole[2:3], atol=1e-6)
        )
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError):
        return False  # it wants more than seven numbers in a row, so it looks at more than one of them


def _is_transposed(module: nn.Module) -> bool:
    return type(module).__name__ == "Conv1D" and type(module).__module__.startswith("transformers.")


def _is_weighted(module: nn.Module) -> bool:
    return isinstance(module, WEIGHTED) or _is_transposed(module)


def _check_batch(batch: Any) -> None:
    first = batch[0] if isinstance(batch, tuple | list) and batch else batch
    if not isinstance(first, Tensor):
        raise ValueError(f"batch must be a tensor or a tuple of the model's inputs, got {type(first).__name__}")
    if first.dim() < 1 or 0 in first.shape:
        raise ValueError(f"batch must have at least one sample, got the shape {tuple(first.shape)}")
    if first.is_floating_point() and not torch.isfinite(first).all():
        raise ValueError("batch must hold finite numbers only")


def _rows(tensor: Tensor, module: nn.Module, most: int) -> Tensor:
    """Samples as rows and units as columns, not more than `most` of them, evenly chosen."""
    if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        channels = tensor.dim() - len(module.kernel_size) - 1  # also without a batch
        rows = tensor.movedim(channels, -1)
        rows = rows.reshape(-1, rows.shape[-1])
    else:
        rows = tensor.reshape(-1, tensor.shape[-1])
    if len(rows) > most:
        rows = rows[torch.linspace(0, len(rows) - 1, most, device=rows.device).long()]
    return rows.detach().clone()  # for what comes next may work in place
