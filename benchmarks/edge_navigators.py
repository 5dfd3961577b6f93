"""Parts of `benchmarks/edge.py`: trained navigators on the board, and learning there."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

import gpf
from gpf.edge.builds import Library
from gpf.edge.c import replay, replay_together, write_c
from gpf.edge.flights import Flight, fly
from gpf.edge.learners import ROOTS
from gpf.edge.learning import SOURCE, Learning, write_learner
from gpf.edge.m4 import learn_on_m4, measure_object, replay_on_m4
from gpf.edge.policy import Policy, from_network, read_layers, read_policy
from gpf.navigation.agents import Navigator
from gpf.navigation.evaluate import evaluate
from gpf.navigation.seeds import BLOCK, HELD_OUT
from gpf.network import MLP, Rules
from gpf.plume.memory import MEMORY_SIZE
from gpf.plume.scenario import Scenario
from gpf.reports.statistics import wilson

SEEDS = HELD_OUT + 7_030 * BLOCK
"""Seeds of the episodes that navigators fly here; comparisons use blocks from 0 on."""
TRAINED: dict[str, dict[str, Any]] = {
    "unpruned": {"gpf": False},
    "pruned and compacted": {
        "rules": {
            "grow_patience": None,
            "prune_patience": None,
            "freeze_patience": None,
            "max_depth": 2,
            "granularity": "unit",
            "prune_to": 0.4,
            "prune_from": 0.1,
            "prune_until": 0.6,
        }
    },
}
"""Two navigators that differ in nothing else."""
SIZES = ((32, 1), (32, 2), (64, 1), (64, 2), (64, 4))
"""Width and hidden layers of networks that learn."""
CLOCK = 64e6
"""Of the processor, Hz."""
SLOW = 26
"""Cycles that a root and a division take beyond one each: 14 each on the Cortex-M4F; there is one of both a weight."""
UPDATES = 100


def measure_navigators(folder: Path, runs: Path, quick: bool) -> list[dict[str, Any]]:
    """Success, instructions and flash of a navigator, of a pruned one, and of the same in 8 bits."""
    rows = []
    for name, changes in TRAINED.items():
        run = runs / name.replace(" ", "-")
        if not (run / "checkpoints" / "last").is_dir():
            steps = {"steps": 40_000} if quick else {}
            gpf.train(run, threads=1, depth=2, evaluate=0, **steps, **changes)
        policy, navigator = read_policy(run, acting="greedy")
        flights = fly(navigator.policy, navigator.scenario, 20 if quick else 60)
        for quantised in (False, True):
            title = f"{name}, {'int8' if quantised else 'float32'}"
            rows.append(measure_navigator(folder, title, policy, navigator, flights, quantised, 100 if quick else 2000))
    return rows


def measure_navigator(
    folder: Path, name: str, policy: Policy, navigator: Navigator, flights: list[Flight], quantised: bool, episodes: int
) -> dict[str, Any]:
    """One row."""
    place = Path(tempfile.mkdtemp(dir=folder))
    half = len(flights) // 2
    write_c(place, policy, flights[:half], quantised=quantised)
    library = Library(place)
    found = evaluate(library, navigator.scenario, episodes, SEEDS, threads=1)
    sensors = [flight.sensors for flight in flights[half:]]
    starts = np.cumsum([0, *map(len, sensors[:-1])]).tolist()
    chosen = library.replay(np.concatenate(sensors), starts)
    wanted = np.concatenate([outputs for _, outputs in replay_together(policy, sensors)]).argmax(1)
    board, size = replay_on_m4(place, np.concatenate(sensors), starts), measure_object(place)
    low, high = wilson(int(found.success.sum()), episodes)
    assert board.wrong == 0
    assert (board.actions == chosen).all()
    return {
        "navigator": name,
        "hidden units": "-".join(str(layer.outputs) for layer in policy.layers[:-1]),
        "success [95 % CI]": f"{found.success.mean():.1%} [{low:.1%}, {high:.1%}]",
        "actions of float32": f"{(chosen == wanted).mean():.2%}",
        "instructions": board.instructions,
        "flash, bytes": size.flash,
        "RAM, bytes": size.ram,
    }


def measure_learning(folder: Path, flights: list[Flight]) -> list[dict[str, Any]]:
    """Instructions of an update, what that means in updates a second, flash and RAM."""
    rows = []
    for width, depth in SIZES:
        place, learning = Path(tempfile.mkdtemp(dir=folder)), make_learning(width, depth)
        ram = write_learner(place, learning)
        inputs = replay(learning.policy, flights[0].sensors)[0]
        random = np.random.default_rng(0)
        transitions = [
            (inputs[n % len(inputs)], int(random.integers(6)), float(random.normal()), n % 50 == 49)
            for n in range(UPDATES)
        ]
        (instructions,) = learn_on_m4(place, transitions, [0.0]).instructions
        cycles = instructions + SLOW * learning.parameters
        rows.append({
            "learning, width x hidden layers": f"{width} x {depth}",
            "instructions of an update": instructions,
            "updates/s at 64 MHz, an instruction a cycle": CLOCK / instructions,
            "updates/s with slow roots and divisions": CLOCK / cycles,
            "flash, bytes": measure_object(place, ROOTS, source=SOURCE).flash,
            "RAM, bytes": ram,
        })  # fmt: skip
    return rows


def make_learning(width: int, depth: int) -> Learning:
    """A network that nobody trained, and learns."""
    torch.manual_seed(0)
    model = MLP(MEMORY_SIZE, width, 6, depth)
    policy = from_network(model, Scenario.of("reference"), "memory", {"name": "benchmark"})
    rules = Rules.plume(grow_patience=None, freeze_patience=None)
    return Learning(policy, tuple(read_layers(model)), {}, (), rules, 3e-4, 0.998, 10.0, 0.05)
