"""Wall-clock time until a navigator finds the source in 95 % of held-out episodes, beside stable-baselines3.

    python benchmarks/time_to_success.py [--peers configured default] [--seeds 5] [--limit 900]
                                         [--runs runs/time_to_success] [--write] [--json]

Contenders, each on one core, with the same observation (memory), reward (search), discount and 64 units a layer:

- ours: the default of `gpf train`
- configured: PPO of stable-baselines3 with our number of lanes, horizon, minibatch, epochs, learning rate and entropy,
  over our native lanes (`gpf.plume.sb3.PlumeVecEnv`) and over as many environments of `make_vec_env`
  (CleanRL is no contender: 1.0 and later need Python below 3.10, or 3.11 for 1.2.0, and what pip offers Python 3.11,
  0.4.8, needs gym, seaborn and wandb.)
- default: PPO and DQN of stable-baselines3 with their own defaults, over 8 environments of `make_vec_env` and over 8 of
  our lanes

The clock runs while a contender learns, and stops while it is evaluated: 500 held-out episodes, the same for all. Time
counts until the second of two evaluations in a row at 95 %. Peers are evaluated with best and with drawn actions, and
the better counts. Ours has one network for policy and value, of one layer that grows to three; theirs have two networks
of two layers (PPO), or one (DQN).
Seeds take turns. Finished measurements are kept in --runs and not repeated. `--write` puts a table for each kind of
peer into docs/navigators.md.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Any

import numpy as np
import torch
from documents import insert

from gpf.reports.tables import markdown_table

CONTENDERS = {
    "ours": "gpf, default navigator",
    "ppo-configured-native": "stable-baselines3 PPO, configured as ours, our lanes",
    "ppo-configured": "stable-baselines3 PPO, configured as ours, make_vec_env",
    "ppo": "stable-baselines3 PPO, make_vec_env",
    "dqn": "stable-baselines3 DQN, make_vec_env",
    "ppo-native": "stable-baselines3 PPO, our lanes",
    "dqn-native": "stable-baselines3 DQN, our lanes",
}
PEERS = {
    "configured": ("ours", "ppo-configured-native", "ppo-configured"),
    "default": ("ours", "ppo", "dqn", "ppo-native", "dqn-native"),
}
"""The rows of the table for each kind of peer."""
TARGET = 0.95
EPISODES = 500
DISCOUNT = 0.998
LANES = 8
EVERY = 20_000
"""Least steps between two evaluations of a peer."""


def main() -> None:
    """Measure what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS), help="kinds of peers to measure")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--limit", type=float, default=900.0, help="seconds of learning at most")
    parser.add_argument("--runs", type=Path, default=Path("runs/time_to_success"))
    parser.add_argument("--write", action="store_true", help="put the table into docs/navigators.md")
    parser.add_argument("--json", action="store_true", help="end with one JSON object of ratios")
    parser.add_argument("--one", nargs=2, metavar=("CONTENDER", "SEED"), help="measure just this, in this process")
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments.one[0], int(arguments.one[1]), arguments.limit)))
        return
    all_ratios: dict[str, float | None] = {}
    for peers in arguments.peers:
        curves = measure_all(PEERS[peers], arguments.runs, arguments.seeds, arguments.limit)
        text, ratios = summarise(curves)
        all_ratios |= ratios
        print(text)
        if arguments.write:
            insert("docs/navigators.md", f"time-{peers}", text)
    if arguments.json:
        print(json.dumps(all_ratios))


Curve = list[tuple[float, int, float]]
"""Seconds, steps and success of each evaluation."""


def measure_all(contenders: Sequence[str], runs: Path, seeds: int, limit: float) -> dict[str, list[Curve]]:
    """Every contender with every seed, in turns, one process on each core."""
    runs.mkdir(parents=True, exist_ok=True)
    free: Queue[int] = Queue()
    for core in sorted(os.sched_getaffinity(0)):
        free.put(core)

    def one(contender: str, seed: int) -> Curve:
        path = runs / f"{contender}-{seed}-{limit:.0f}s.json"
        if not path.exists():
            core = free.get()
            command = [sys.executable, __file__, "--one", contender, str(seed), "--limit", str(limit)]
            done = subprocess.run(["taskset", "-c", str(core), *command], capture_output=True, text=True)
            free.put(core)
            if done.returncode:
                raise RuntimeError(f"{contender}: {done.stderr.strip().splitlines()[-1]}")
            path.write_text(done.stdout.splitlines()[-1])
        curve: Curve = json.loads(path.read_text())
        print(f"{contender}, seed {seed}: {describe(curve)}", file=sys.stderr, flush=True)
        return curve

    with ThreadPoolExecutor(free.qsize()) as pool:
        futures = {(c, seed): pool.submit(one, c, seed) for seed in range(seeds) for c in contenders}
        return {c: [futures[c, seed].result() for seed in range(seeds)] for c in contenders}


def time_to(curve: Sequence[tuple[float, int, float]], target: float) -> float | None:
    """Seconds until the second of two evaluations in a row at the target; None if there are none."""
    for before, now in itertools.pairwise(curve):
        if before[2] >= target and now[2] >= target:
            return now[0]
    return None


def describe(curve: Curve) -> str:
    reached = time_to(curve, TARGET)
    best = max(success for _, _, success in curve)
    return (
        f"{TARGET:.0%} after {reached:.1f} s"
        if reached
        else f"never {TARGET:.0%} in {curve[-1][0]:.0f} s, best {best:.1%}"
    )


def summarise(curves: dict[str, list[Curve]]) -> tuple[str, dict[str, float | None]]:
    """The table, and how many times as long as ours each peer takes: the median over seeds.

    A peer that never gets to the target counts with the whole time that it had: its ratio is a lower bound. Beside it
    stands the ratio to the best that the peer did reach, where both reached it.
    """
    rows = []
    ratios: dict[str, float | None] = {}
    for contender, of_seeds in curves.items():
        name = CONTENDERS[contender]
        pairs = list(zip(of_seeds, curves["ours"], strict=True))
        times = ", ".join(describe(curve) for curve in of_seeds)
        speed = statistics.median(curve[-1][1] / curve[-1][0] for curve in curves[contender])
        cells = ("1", "1")
        if contender != "ours":
            ratio = median([ratio_to(peer, ours, TARGET, whole=True) for peer, ours in pairs])
            to_best = median([ratio_to(peer, ours, best_held(peer), whole=False) for peer, ours in pairs])
            bound = "" if all(time_to(curve, TARGET) for curve in curves[contender]) else "at least "
            cells = (f"{bound}{number(ratio)}", number(to_best))
            ratios[contender] = ratio
        rows.append([name, times, f"{speed:,.0f}", *cells])
    header = ["contender", f"time to {TARGET:.0%}, by seed", "steps/s", "times ours", "times ours to its own best"]
    return markdown_table(header, rows), ratios


def best_held(curve: Curve) -> float:
    """The highest success that two evaluations in a row had."""
    return max((min(a[2], b[2]) for a, b in itertools.pairwise(curve)), default=0.0)


def ratio_to(peer: Curve, ours: Curve, target: float, whole: bool) -> float | None:
    """The peer's time to the target over ours; `whole`: a peer that misses it counts with all the time that it had."""
    theirs, mine = time_to(peer, target), time_to(ours, target)
    if theirs is None and whole:
        theirs = peer[-1][0]
    return None if theirs is None or mine is None else theirs / mine


def median(values: list[float | None]) -> float | None:
    """The median; None where one is missing."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if len(known) == len(values) else None


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}" if value >= 10 else f"{value:.1f}"


def measure(contender: str, seed: int, limit: float) -> Curve:
    """One contender's curve, until it has reached the target or the limit."""
    torch.set_num_threads(1)
    return measure_ours(seed, limit) if contender == "ours" else measure_peer(contender, seed, limit)


def held_out_seeds() -> range:
    from gpf.navigation.seeds import BLOCK, HELD_OUT

    first = HELD_OUT + (BLOCK - 1) * BLOCK  # a block that no run reports on
    return range(first, first + EPISODES)


def measure_ours(seed: int, limit: float) -> Curve:
    """`gpf train` round by round, its own validations and checkpoints on the clock."""
    from gpf.navigation.evaluate import evaluate
    from gpf.tasks.plume import TASK, PlumeTraining

    curve: Curve = []
    seconds = 0.0
    with tempfile.TemporaryDirectory() as folder:
        config = TASK.of({"seed": seed})
        training = PlumeTraining(TASK.create(Path(folder, "run"), config), config, threads=1)
        while seconds < limit and not training.over:  # to the end: a peer's best may lie above the target
            started = time.perf_counter()
            training.round()
            seconds += time.perf_counter() - started
            result = evaluate(training.policy(), training.world, EPISODES, held_out_seeds()[0], threads=1)
            curve.append((seconds, training.progress["step"], float(result.success.mean())))
    return curve


def measure_peer(contender: str, seed: int, limit: float) -> Curve:
    import stable_baselines3
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env

    import gpf  # noqa: F401 - registers the environments
    from gpf.plume.sb3 import PlumeVecEnv
    from gpf.plume.scenario import Scenario

    scenario = Scenario.preset("reference").rewarded("search", DISCOUNT)
    kwargs: dict[str, Any] = {"scenario": scenario, "observation": "memory"}
    configured = as_ours() if "configured" in contender else {}
    count = int(configured.pop("lanes", LANES))
    lanes: Any
    if contender.endswith("native"):
        lanes = PlumeVecEnv(count, threads=1, **kwargs)
    else:
        lanes = make_vec_env("gpf/Plume-v0", n_envs=count, seed=seed, env_kwargs=kwargs)
    curve: Curve = []

    class Watch(BaseCallback):
        """Stops the clock every so many steps to evaluate."""

        seconds, started, evaluated = 0.0, time.perf_counter(), 0

        def _on_training_start(self) -> None:
            self.started = time.perf_counter()

        def _on_step(self) -> bool:
            if self.num_timesteps - self.evaluated < EVERY:
                return True
            self.seconds += time.perf_counter() - self.started
            self.evaluated = self.num_timesteps
            success = max(peer_success(self.model, scenario, drawn) for drawn in (False, True))
            curve.append((self.seconds, self.num_timesteps, success))
            self.started = time.perf_counter()
            return self.seconds < limit and time_to(curve, TARGET) is None

    if contender.startswith("ppo"):
        model: Any = stable_baselines3.PPO("MlpPolicy", lanes, gamma=DISCOUNT, seed=seed, device="cpu", **configured)
    else:  # as many gradient steps as its documentation asks for with several environments
        model = stable_baselines3.DQN("MlpPolicy", lanes, gamma=DISCOUNT, gradient_steps=-1, seed=seed, device="cpu")
    model.learn(total_timesteps=50_000_000 if contender.startswith("ppo") else 1_000_000, callback=Watch())
    return curve


def as_ours() -> dict[str, Any]:
    """The settings of our default learner, by the names of stable-baselines3, and the number of lanes."""
    from gpf.tasks.plume import TASK

    ours: Any = TASK.of({}).learner
    return {
        "lanes": ours.lanes,
        "n_steps": ours.horizon,
        "batch_size": ours.minibatch,
        "n_epochs": ours.update_epochs,
        "learning_rate": ours.learning_rate,
        "ent_coef": ours.entropy,
        "gae_lambda": ours.gae_lambda,
        "max_grad_norm": ours.gradient_clip,
    }


def peer_success(model: Any, scenario: Any, drawn: bool) -> float:
    """A peer's success in the held-out episodes."""
    from gpf.plume.memory import Memory
    from gpf.plume.world import World

    world = World(EPISODES, scenario, threads=1)
    world.seed(held_out_seeds())
    world.begin()
    memory, found = Memory(world.rows), np.zeros(EPISODES, np.bool_)
    while world.lanes["running"].any():
        actions, _ = model.predict(memory.update(world.raw), deterministic=not drawn)
        world.step(actions.astype(np.int64))
        found |= world.successes
    return float(found.mean())


if __name__ == "__main__":
    main()
