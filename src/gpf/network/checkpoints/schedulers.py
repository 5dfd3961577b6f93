"""Learning-rate schedulers in checkpoints: plain data is saved, the user's function creates the rest."""

from collections.abc import Callable, Iterable
from typing import Any

from torch.optim import Optimizer

SchedulerFactory = Callable[[Any], Any]
"""Given the optimizer, or the tuple of optimizers if there are several, makes a scheduler."""


def describe(schedulers: Any) -> list[dict[str, Any]]:
    """The state of a scheduler, or of each of several, as plain data."""
    several = [] if schedulers is None else schedulers if isinstance(schedulers, list | tuple) else [schedulers]
    for one in several:
        if not hasattr(one, "state_dict") or not hasattr(one, "load_state_dict"):
            raise ValueError(f"scheduler must be a learning-rate scheduler or a list of them, got {type(one).__name__}")
    return [_plain(one.state_dict()) for one in several]


def make(
    factories: SchedulerFactory | Iterable[SchedulerFactory] | None,
    described: list[dict[str, Any]],
    optimizers: tuple[Optimizer, ...],
) -> list[Any]:
    """Schedulers in the states that `describe` has seen.

    A scheduler sets learning rates when it is made, as at the start of training: those of the checkpoint are put back.
    """
    if factories is None:
        return []
    several = [factories] if callable(factories) else list(factories)
    if len(several) != len(described):
        raise ValueError(f"scheduler must make as many as were saved ({len(described)}), got {len(several)}")
    settings = [[_settings(group) for group in one.param_groups] for one in optimizers]
    made = []
    for factory, saved in zip(several, described, strict=True):
        scheduler = factory(optimizers[0] if len(optimizers) == 1 else optimizers)
        scheduler.load_state_dict(_merged(scheduler.state_dict(), saved))
        made.append(scheduler)
    for one, groups in zip(optimizers, settings, strict=True):
        for group, values in zip(one.param_groups, groups, strict=True):
            group.update(values)
    return made


def _settings(group: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in group.items() if name not in ("params", "param_names")}


def _plain(state: dict[str, Any]) -> dict[str, Any]:
    """What JSON can hold of a state; the rest, such as functions, is left to the code that creates the scheduler."""
    found = {}
    for name, value in state.items():
        if isinstance(value, list | tuple) and value and all(isinstance(one, dict) for one in value):
            found[name] = [_plain(one) for one in value]
        elif _is_plain(value):
            found[name] = value
    return found


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(_is_plain(one) for one in value)
    return value is None or isinstance(value, bool | int | float | str)


def _merged(made: dict[str, Any], saved: dict[str, Any]) -> dict[str, Any]:
    """A scheduler's new state with what was saved of the old one."""
    merged = dict(made)
    for name, value in saved.items():
        nested = isinstance(value, list) and value and all(isinstance(one, dict) for one in value)
        now = made.get(name)
        if nested and isinstance(now, list | tuple) and len(now) == len(value):
            merged[name] = [_merged(a, b) if isinstance(a, dict) else a for a, b in zip(now, value, strict=True)]
        else:
            merged[name] = value
    return merged
