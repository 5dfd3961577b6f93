"""Models whose parameters are sharded by `torch.distributed.fsdp.fully_shard` (FSDP2).

Findings with torch 2.13, which the functions here rely on:

- A parameter is a DTensor that holds one shard of its rows. `to_local()` is a view of it, so a mask can be applied to
  values, gradient and moments in place, without communication. Beliefs and masks are therefore plain tensors of the
  shard's shape. Counts and shares need `total`, everything that is written needs `full`; both are collective.
- After an evaluation the root keeps its unsharded parameters, which are other objects than those of the optimizer.
  `settle` puts the sharded ones back.
- Gradients are there, reduced and sharded, when `backward` returns. Hooks after accumulation run too. A mask on values
  must come before the root's forward hook gathers them: in a hook of the model with `prepend=True`, or after the step.
- Freezing by `requires_grad_(False)` on the sharded parameters works at once, like thawing. The dtype of the
  reduced gradients is decided when the root initialises itself, so thawing asks for that again.
- The root lists its units at the first forward. A new unit that it does not list would act as a second root. Nothing
  public adds one: `renew_root` empties the list and lets torch write it again.
- `fully_shard` changes the class of a module; `class_of` gives the one that it had.

torch.distributed.tensor takes half a second to import, so nothing here imports it before there is a sharded model.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from gpf.network.pruning import cheapest

_SETTINGS = (
    "reduce_grads",
    "all_reduce_grads",
    "reshard_after_backward",
    "gradient_divide_factor",
    "force_sum_reduction_for_comms",
    "reduce_scatter_unused_params",
    "unshard_async_op",
    "unshard_in_backward",
)
"""The settings that the setters of a sharded module write into its group of parameters, and a new block takes over."""


class Kept(NamedTuple):
    """How many entries of a weight are left, in all and along its first two dimensions, over all shards."""

    total: int
    by_row: Tensor
    by_column: Tensor


# Models


def units(model: nn.Module) -> list[Any]:
    """The modules on which `fully_shard` was called, outermost first."""
    if "torch.distributed.fsdp" not in sys.modules:
        return []
    from torch.distributed.fsdp import FSDPModule

    return [module for module in model.modules() if isinstance(module, FSDPModule)]


def is_sharded(model: nn.Module) -> bool:
    """Whether any part of a model is sharded."""
    return bool(units(model))


def class_of(module: nn.Module) -> type:
    """The class of a module before it was sharded."""
    return type(module).__mro__[2] if _is_unit(module) else type(module)


def _is_unit(module: nn.Module) -> bool:
    return any(unit is module for unit in units(module))


def check(model: nn.Module) -> None:
    """Refuse what is sharded in another way than by `fully_shard` on one dimension."""
    if "torch.distributed.fsdp" in sys.modules:
        from torch.distributed.fsdp import FullyShardedDataParallel

        if any(isinstance(module, FullyShardedDataParallel) for module in model.modules()):
            raise ValueError(
                "model must be sharded with torch.distributed.fsdp.fully_shard, got FullyShardedDataParallel, whose"
                " flat parameters cannot change"
            )
    settle(model)
    sharded = is_sharded(model)
    for name, parameter in model.named_parameters():
        placements = getattr(parameter, "placements", ())
        if is_shard(parameter) and not (sharded and sum(placement.is_shard() for placement in placements) == 1):
            raise ValueError(
                f"model must be sharded with torch.distributed.fsdp.fully_shard alone, got {name} with placements"
                f" {placements}, to which a new block could not be fitted"
            )


def settle(model: nn.Module) -> None:
    """Let the model hold its sharded parameters, those that the optimizer has."""
    for unit in units(model):
        unit.reshard()


# Tensors


def is_shard(tensor: Any) -> bool:
    """Whether a tensor is a DTensor."""
    return hasattr(tensor, "to_local")


def _split(like: Any) -> tuple[int, int]:
    """The mesh dimension over which a DTensor is split, and the dimension of the tensor that it splits."""
    ((dim, along),) = ((i, placement.dim) for i, placement in enumerate(like.placements) if placement.is_shard())
    return dim, along


def local(tensor: Tensor) -> Tensor:
    """The shard of a tensor that this process has, which can be changed in place; an unsharded tensor itself."""
    if not is_shard(tensor):
        return tensor
    with torch.no_grad():
        return tensor.to_local()  # type: ignore[attr-defined]


def share_of(tensor: Tensor, like: Tensor) -> Tensor:
    """The shard that this process has of a whole tensor, if `like`, of the same shape, is sharded; may be a view."""
    if is_shard(tensor) or not is_shard(like):
        return local(tensor)
    from torch.distributed.tensor import distribute_tensor

    mesh, placements = like.device_mesh, like.placements  # type: ignore[attr-defined]
    whole = tensor.detach().to(mesh.device_type)
    return local(distribute_tensor(whole, mesh, placements, src_data_rank=None))


def as_shard_of(shard: Tensor, like: Tensor) -> Tensor:
    """A process's shard as a sharded tensor, if `like` is one."""
    if is_shard(shard) or not is_shard(like):
        return shard
    from torch.distributed.tensor import DTensor

    mesh, placements = like.device_mesh, like.placements  # type: ignore[attr-defined]
    return DTensor.from_local(shard, mesh, placements, run_check=False, shape=like.shape, stride=like.stride())


def full(tensor: Tensor) -> Tensor:
    """The whole of a sharded tensor, on all processes; all of them must ask for it."""
    if not is_shard(tensor):
        return tensor
    with torch.no_grad():
        mesh = tensor.device_mesh  # type: ignore[attr-defined]
        return tensor.detach().to(mesh.device_type).full_tensor()  # type: ignore[attr-defined]


def gathered(tensors: Mapping[str, Tensor], keep: bool) -> dict[str, Tensor]:
    """The wholes of named tensors, one after the other; nothing on a process that need not keep them."""
    whole = {}
    for name in sorted(tensors):  # in the same order everywhere; safetensors gives names in any
        value = full(tensors[name])
        if keep:
            whole[name] = value.cpu() if is_shard(tensors[name]) else value  # not all of the model on one device
    return whole


def total(counts: Sequence[int], like: Tensor) -> list[int]:
    """Sums of counts over all shards of `like`; all processes must ask for them."""
    if not is_shard(like):
        return list(counts)
    return [int(count) for count in _summed(torch.tensor(counts, dtype=torch.int64), like)]


def _summed(values: Tensor, like: Any) -> Tensor:
    values = values.to(like.device_mesh.device_type)
    torch.distributed.all_reduce(values, group=like.device_mesh.get_group(_split(like)[0]))
    return values.cpu()


def kept(pruned: Tensor, like: Tensor) -> Kept:
    """How many entries of a weight are left, given which of its shard are pruned; all processes must ask for it."""
    rows, by_column = [], torch.zeros(pruned.shape[1], dtype=torch.int64)
    for part in pruned.split(max(1, 2**18 // max(1, pruned[0].numel()))) if len(pruned) else ():  # fits a cache
        left = part.logical_not()
        rows.append(left.flatten(1).sum(1, dtype=torch.int32))
        by_column += left.sum([0, *range(2, left.dim())], dtype=torch.int32).cpu()
    counts = [torch.cat(rows).long().cpu() if rows else torch.zeros(0, dtype=torch.int64), by_column]
    if is_shard(like):
        placed = [_in_place(count, along, like) for along, count in enumerate(counts)]
        counts = list(_summed(torch.cat(placed), like).split([len(part) for part in placed]))
    return Kept(int(counts[0].sum()), *counts)


def _in_place(values: Tensor, along: int, like: Any) -> Tensor:
    """Values along a dimension of a shard, at their places along that of the whole tensor, with zeros around them."""
    (dim, split), size, start = _split(like), like.shape[along], 0
    if split == along:
        chunk = -(-size // like.device_mesh.size(dim))  # as torch.chunk splits
        start = min(chunk * like.device_mesh.get_local_rank(dim), size)
    placed = torch.zeros(size, dtype=values.dtype)
    placed[start : start + len(values)] = values
    return placed


def cheapest_of_all(
    costs: Sequence[Tensor], gone: Sequence[Tensor | None], likes: Sequence[Tensor], count: int
) -> list[Tensor]:
    """Masks of the `count` entries of smallest absolute value, over all shards of all tensors; of equals, the first.

    No process sees more than its shards: the highest of those costs is found by bisection, in 64 sums over processes.
    All processes must ask for it.
    """
    example = next((like for like in likes if is_shard(like)), None)
    if example is None:
        return cheapest(costs, count, gone)
    firsts = [
        cost.abs() if mask is None else cost.abs().masked_fill(mask, -1.0)
        for cost, mask in zip(costs, gone, strict=True)
    ]
    keys = [_ordered(cost) for cost in firsts]
    mesh, (dim, _) = example.device_mesh, _split(example)  # type: ignore[attr-defined]
    rank, size = mesh.get_local_rank(dim), mesh.size(dim)
    ours = [is_shard(like) or rank == 0 for like in likes]  # what all have whole counts once

    def at_most(limit: int) -> int:
        return total([sum(int((key <= limit).sum()) for key, mine in zip(keys, ours, strict=True) if mine)], example)[0]

    low, high = -(2**63), 2**63 - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if at_most(middle) >= count else (middle + 1, high)
    below, equal = [key < low for key in keys], [key == low for key in keys]
    wanted = count - (at_most(low - 1) if low > -(2**63) else 0)
    table = torch.zeros(len(keys), size, dtype=torch.int64)  # equals of each tensor in each shard
    table[:, rank] = torch.tensor([int(mask.sum()) if mine else 0 for mask, mine in zip(equal, ours, strict=True)])
    flat = _summed(table, example).flatten()
    earlier = (flat.cumsum(0) - flat).view_as(table)
    return [
        less | _first(same, wanted - int(earlier[i, rank if is_shard(like) else 0]))
        for i, (less, same, like) in enumerate(zip(below, equal, likes, strict=True))
    ]


def _ordered(values: Tensor) -> Tensor:
    """Whole numbers in the same order as the values."""
    bits = values.double().view(torch.int64)
    return torch.where(bits < 0, bits ^ (2**63 - 1), bits)


def _first(mask: Tensor, count: int) -> Tensor:
    """A mask of the first `count` entries of a mask."""
    return mask & (mask.flatten().cumsum(0).view_as(mask) <= count)


# New blocks


def shard_like(block: nn.Module, last: nn.Module, model: nn.Module) -> None:
    """Shard a new block, the same on all processes, as the last one is; `renew_root` once it is in the model.

    A block whose parameters are sharded by a module around it gives an example too: the new one becomes a unit.
    """
    if not is_sharded(model):
        return
    settle(model)
    names = {module: name for name, module in last.named_modules()}
    done: set[Any] = set()
    for unit in reversed(units(last)):  # those within others first
        state = unit._get_fsdp_state()
        if state not in done:
            done.add(state)
            inside = [names[module] for module in state._modules if module in names]
            new, old = ([whole.get_submodule(name) for name in inside] for whole in (block, last))
            _shard(new, old, state, model)
    around = [unit for unit in units(model) if unit is not last and any(module is last for module in unit.modules())]
    if not _is_unit(last) and around:
        _shard([block], [last], around[-1]._get_fsdp_state(), model)


def _shard(modules: list[nn.Module], examples: list[nn.Module], state: Any, model: nn.Module) -> None:
    """Shard new modules as one unit, with the settings of the unit that their examples are in."""
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Shard

    # A unit without parameters of its own casts what goes through it, and is on the mesh of the others.
    group = [*_groups(state), *(group for unit in units(model) for group in _groups(unit._get_fsdp_state()))][0]
    splits, ignored = {}, set()
    for module, example in zip(modules, examples, strict=True):
        namesakes = dict(example.named_parameters())
        for name, parameter in module.named_parameters():
            namesake = namesakes.get(name)
            if namesake is not None and is_shard(namesake):
                splits[id(parameter)] = _split(namesake)[1]
            elif namesake is not None:
                ignored.add(parameter)
    options: dict[str, Any] = {"ignored_params": ignored} if ignored else {}
    if any(splits.values()):
        options["shard_placement_fn"] = lambda parameter: Shard(splits.get(id(parameter), 0))
    fully_shard(
        modules if len(modules) > 1 else modules[0],
        mesh=group.mesh_info.mesh,
        reshard_after_forward=_reshard_after_forward(state, group),
        mp_policy=state._mp_policy,
        offload_policy=group.offload_policy,
        **options,
    )
    for new in _groups(modules[0]._get_fsdp_state()):  # type: ignore[operator]
        for name in _SETTINGS:
            if hasattr(group, name):
                setattr(new, name, getattr(group, name))


def _groups(state: Any) -> list[Any]:
    """The groups of parameters of a unit; before torch 2.11 it has one at most."""
    if hasattr(state, "_fsdp_param_groups"):
        return list(state._fsdp_param_groups)
    return [] if state._fsdp_param_group is None else [state._fsdp_param_group]


def _reshard_after_forward(state: Any, group: Any) -> bool | int | None:
    """The arguments of `fully_shard`."""
    if getattr(state, "_auto_reshard_after_forward", False):
        return None
    after = group.post_forward_mesh_info
    return after is not None and (after == group.mesh_info or int(after.shard_mesh_size))


def renew_root(model: nn.Module) -> None:
    """Let the root look again which units there are and what they learn, if it has looked already."""
    for context in _contexts(model):
        states = list(context.all_states)
        for state in states:
            state._is_root = None
            for group in _groups(state):
                group._module_fqn = None
        context.all_states.clear()
        states[0]._lazy_init()


def _contexts(model: nn.Module) -> Iterator[Any]:
    """The state that units under the same root share, for each root that has initialised itself."""
    contexts = {id(unit._get_fsdp_state()._state_ctx): unit._get_fsdp_state()._state_ctx for unit in units(model)}
    return (context for context in contexts.values() if context.all_states)
