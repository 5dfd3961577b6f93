"""The optimizers of one model, as one list of parameter groups."""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from gpf.network.blocks.gated import without_gate


class Optimizers:
    """One optimizer or several, each parameter in at most one of them.

    Args:
        given: An optimizer, or several, such as Muon for matrices and AdamW for the rest. Wrappers that hold the real
            optimizer as `optimizer`, such as accelerate's, are taken off.
    """

    def __init__(self, given: Optimizer | Iterable[Optimizer]) -> None:
        several = [given] if isinstance(given, Optimizer) or hasattr(given, "param_groups") else given
        if not isinstance(several, Iterable):
            raise ValueError(f"optimizer must be a torch optimizer or a sequence of them, got {given!r}")
        self.members: tuple[Optimizer, ...] = tuple(_unwrapped(one) for one in several)
        if not self.members:
            raise ValueError("optimizer must be an optimizer or several, got none")
        for one in self.members:
            if isinstance(one, torch.optim.LBFGS):
                raise ValueError("optimizer must keep a state for each parameter, got LBFGS, which keeps one for all")
        ids = [id(p) for group in self.groups for p in group["params"]]
        if len(set(ids)) < len(ids):
            raise ValueError("optimizer: each parameter must be in one group of one optimizer, got one that is in two")
        self._ranks: dict[int, float] = {}
        for group in self.groups:
            self.rank(group["params"])

    def __iter__(self) -> Iterator[Optimizer]:
        return iter(self.members)

    @property
    def groups(self) -> list[dict[str, Any]]:
        """The parameter groups of all of them, in order; the dictionaries are the optimizers' own."""
        return [group for one in self.members for group in one.param_groups]

    def owner(self, group: int) -> Optimizer:
        """The optimizer that a group belongs to."""
        for one in self.members:
            if group < len(one.param_groups):
                return one
            group -= len(one.param_groups)
        raise IndexError(group)

    def find(self, parameter: Tensor) -> tuple[int | None, Optimizer | None]:
        """The group that a parameter is in, and that group's optimizer; None twice if it is in none."""
        index = 0
        for one in self.members:
            for group in one.param_groups:
                if any(p is parameter for p in group["params"]):
                    return index, one
                index += 1
        return None, None

    def rank(self, parameters: Iterable[Tensor]) -> None:
        """Say in which order parameters of a group stand there, those that have left it for a while included."""
        for place, parameter in enumerate(parameters):
            self._ranks[id(parameter)] = place

    def rank_of(self, parameter: Tensor) -> float:
        """The place of a parameter in the order of its group; a new one comes last."""
        return float(self._ranks.get(id(parameter), math.inf))

    def forget(self, parameter: Tensor) -> None:
        """A parameter has left for good."""
        self._ranks.pop(id(parameter), None)

    def insert(self, parameter: nn.Parameter, group: int, name: str) -> None:
        """Put a parameter into a group: where it stood before it left, or at the end."""
        members = self.groups[group]
        rank = self.rank_of(parameter)
        place = sum(self.rank_of(member) <= rank for member in members["params"])
        members["params"].insert(place, parameter)
        if "param_names" in members:
            members["param_names"].insert(place, name)
        if rank == math.inf:
            known = [of for of in map(self.rank_of, members["params"]) if of < math.inf]
            self._ranks[id(parameter)] = max(known, default=-1.0) + 1

    def replace(self, old: nn.Parameter, new: nn.Parameter) -> None:
        """Let a parameter stand where another stood, in its group and in the order of the group, with its state."""
        for group in self.groups:
            group["params"] = [new if parameter is old else parameter for parameter in group["params"]]
        for one in self.members:
            if old in one.state:
                one.state[new] = one.state.pop(old)
        if id(old) in self._ranks:
            self._ranks[id(new)] = self._ranks.pop(id(old))

    def holder(self, parameter: Tensor) -> Optimizer | None:
        """The optimizer that keeps a state of a parameter."""
        return next((one for one in self.members if parameter in one.state), None)

    def state_of(self, parameter: Tensor) -> Mapping[str, Any]:
        """The state that is kept of a parameter, if any."""
        holder = self.holder(parameter)
        return {} if holder is None else holder.state[parameter]

    def set_state(self, parameter: nn.Parameter, state: dict[str, Any]) -> None:
        """Give a parameter, which is in a group, this state."""
        owner = self.find(parameter)[1]
        if owner is not None:
            owner.state[parameter] = state

    def pop_state(self, parameter: Tensor) -> dict[str, Any]:
        """Take the state of a parameter away, and return it."""
        holder = self.holder(parameter)
        return {} if holder is None else dict(holder.state.pop(parameter))

    def states(self) -> Iterator[tuple[Tensor, dict[str, Any]]]:
        """Every parameter with a state, and its state."""
        for one in self.members:
            yield from one.state.items()


def groups_like(
    last: nn.Module, block: nn.Module, optimizers: Optimizers, stored: Mapping[str, tuple[int, Any]]
) -> dict[str, int]:
    """The parameter group that each parameter of a new block joins: that of its namesake in the last block.

    Args:
        last: The last block.
        block: The new one.
        optimizers: The optimizers.
        stored: The groups that parameters of the last block were in before it was frozen, and what else was kept.
    """
    groups = {name: optimizers.find(parameter)[0] for name, parameter in last.named_parameters()}
    groups |= {name: group for name, (group, _) in stored.items()}
    groups = {without_gate(last, name): group for name, group in groups.items()}
    known = [group for group in groups.values() if group is not None]
    usual = [group for group in range(len(optimizers.groups)) if takes_vectors(optimizers.owner(group))]
    fallback = min({*known} & {*usual} or usual or known or [0])  # for a gate, which has no namesake
    found = {name: groups.get(without_gate(block, name)) for name, _ in block.named_parameters()}
    return {name: fallback if group is None else group for name, group in found.items()}


def takes_vectors(optimizer: Optimizer) -> bool:
    """Whether an optimizer trains parameters of one dimension, too."""
    return type(optimizer).__name__ != "Muon"


def _unwrapped(optimizer: Any) -> Optimizer:
    while isinstance(inner := getattr(optimizer, "optimizer", None), Optimizer):
        optimizer = inner
    if not isinstance(optimizer, Optimizer):
        raise ValueError(f"optimizer must be a torch optimizer or a sequence of them, got {type(optimizer).__name__}")
    return optimizer
