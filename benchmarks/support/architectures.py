"""Models of the zoo in tests/network: each trains, grows, is pruned and frozen, saved and loaded, and compacted."""

import dataclasses
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import gpf

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "network"))
from zoo import GATED, ZOO  # type: ignore[attr-defined]

__all__ = ["ZOO", "run", "script"]

RULES = gpf.Rules(
    grow_patience=1, grow_threshold=100.0, prune_patience=1, belief_threshold=2.0, saliency_threshold=0.01,
    freeze_patience=3, freeze_delta=10.0,
)  # fmt: skip
"""Rules under which six epochs see each kind of event: no improvement is enough, and every weight holds still."""


def train(loss: Callable[[], torch.Tensor], optimizer: torch.optim.Optimizer, steps: int = 2) -> float:
    """Plain training, which knows nothing of gpf."""
    for _ in range(steps):
        value = loss()
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    return float(value)


def script(model: Any, stack: str, loss: Any, rules: gpf.Rules) -> gpf.GrowPruneFreeze:
    """What a user writes for any of the models; lines that are there because of gpf are marked."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
    net = gpf.attach(model, optimizer, stack=stack, rules=rules)  # gpf
    for _ in range(6):
        value = train(loss, optimizer)
        before = outputs(loss)
        events = net.end_epoch(value)  # gpf
        if {event.kind for event in events} == {"grown"}:
            torch.testing.assert_close(outputs(loss), before, rtol=0, atol=1e-5)
    return net


def outputs(loss: Any, model: Any = None) -> torch.Tensor:
    """What the model makes of the data of its loss."""
    with torch.no_grad():
        return loss.outputs(model)


def run(name: str) -> tuple[str, str, str]:
    """Put one model through everything: its stack, how it grows, and what `compact()` leaves of half-pruned blocks."""
    torch.manual_seed(0)
    model, stack, loss = ZOO[name]()
    rules = dataclasses.replace(
        RULES, max_depth=len(model.get_submodule(stack)) + 2, grow_init="gated" if name in GATED else "identity"
    )
    net = script(model, stack, loss, rules)
    assert {event.kind for event in net.events} == {"grown", "pruned", "frozen"}, net.events
    assert net.shape().pruned > 0
    with tempfile.TemporaryDirectory() as folder:
        net.save(f"{folder}/last")
        again = gpf.load(f"{folder}/last", build=lambda: ZOO[name]()[0])
        torch.testing.assert_close(outputs(loss, again.model), outputs(loss), rtol=0, atol=0)
    return stack, rules.grow_init, left_after_compaction(name)


def left_after_compaction(name: str) -> str:
    """The share of parameters that `compact()` leaves in half-pruned blocks, as text."""
    torch.manual_seed(0)
    model, stack, loss = ZOO[name]()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    rules = gpf.Rules(granularity="unit", grow_init="gated" if name in GATED else "identity")
    try:
        net = gpf.attach(model, optimizer, stack=stack, rules=rules)
    except ValueError as error:
        if "unit" not in str(error):
            raise
        return "nothing known"
    net.grow()
    net.prune(keep=0.5)
    before = outputs(loss)
    small = net.compact()
    torch.testing.assert_close(outputs(loss, small), before, rtol=1e-4, atol=1e-5)
    left, whole = (sum(p.numel() for b in _older(m, stack) for p in b.parameters()) for m in (small, model))
    return f"{left / whole:.0%}" if left < whole else "nothing known"


def _older(model: Any, stack: str) -> list[Any]:
    return list(model.get_submodule(stack))[:-1]
