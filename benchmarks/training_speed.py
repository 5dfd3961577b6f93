"""How fast the paper's protocol trains, one environment and one update a step, beside the authors' code.

    python benchmarks/training_speed.py --reference PATH [--rounds 9] [--json]

PATH is a checkout of the authors' repository. Both train Expected SARSA on the same world, with all actions random, at
one and at four hidden layers of 64 units, in turns on one core; medians of the ratios within a round count. The
authors' agent is their canonical one; at four layers its network is that of their growing agent, without bookkeeping.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

import gpf
from gpf.navigation.online import OnlineLearner, Settings, adam, backward, forward_tokens
from gpf.plume.kernels import kernel
from gpf.plume.scenario import Scenario

SECONDS = 1.0
"""Least duration of one measurement."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reference", type=Path, required=True, help="a checkout of the authors' code")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", action="store_true", help="end with one JSON object of ratios")
    arguments = parser.parse_args()
    if not (arguments.reference / "agent" / "expected_sarsa.py").is_file():
        parser.error(f"--reference: {arguments.reference} has no agent/expected_sarsa.py")
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    torch.set_num_threads(1)

    contestants: dict[str, Callable[[], int]] = {}
    for depth in (1, 4):
        contestants[f"authors, {depth}"] = authors_contestant(arguments.reference.resolve(), depth)
        contestants[f"online, {depth}"] = online_contestant(depth)
    speeds: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(arguments.rounds):
        for name, run in contestants.items():
            speeds[name].append(steps_per_second(run))
    ratios = {
        f"online_depth{depth}": statistics.median(
            a / b for a, b in zip(speeds[f"online, {depth}"], speeds[f"authors, {depth}"], strict=True)
        )
        for depth in (1, 4)
    }
    print(f"training steps a second, median of {arguments.rounds} (lowest to highest):")
    for name, values in speeds.items():
        print(f"  {name} hidden layers: {statistics.median(values):10,.0f}  ({min(values):,.0f} to {max(values):,.0f})")
    for depth in (1, 4):
        print(f"online / authors at {depth} hidden layers: {ratios[f'online_depth{depth}']:.0f}")
        print_breakdown(depth, 1e6 / statistics.median(speeds[f"online, {depth}"]))
    if arguments.json:
        print(json.dumps(ratios))


def steps_per_second(run: Callable[[], int]) -> float:
    """Repeat `run`, which returns how many steps it took, for long enough to measure."""
    steps, start = 0, time.perf_counter()
    while (seconds := time.perf_counter() - start) < SECONDS:
        steps += run()
    return steps / seconds


def online_contestant(depth: int) -> Callable[[], int]:
    """Our learner; a run is an episode."""
    learner = make_learner(depth)
    learner.episode(1.0)
    return lambda: int(learner.episode(1.0).steps[0])


def make_learner(depth: int) -> OnlineLearner:
    torch.manual_seed(0)
    model = gpf.MLP(22, 64, 6, depth)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    return OnlineLearner(model, optimizer, Scenario.preset("reference"), Settings(), seed=0)


def authors_contestant(path: Path, depth: int) -> Callable[[], int]:
    """The authors' agent and environment; a run is 100 steps, in the middle of an episode."""
    import yaml

    sys.path.insert(0, str(path))
    from agent.env import PlumeNavigationEnv
    from agent.expected_sarsa import ExpectedSARSA
    from agent.gpf_expected_sarsa import _GPFQNetwork

    config = yaml.safe_load((path / "research" / "configs" / "exp_best.yaml").read_text())
    env = PlumeNavigationEnv(config["simulator"], config["tokenization"], config["rl_agent"], seed=0)
    agent = ExpectedSARSA(env.state_shape, env.n_actions, 64, 1e-3, 0.99, 1.0, 0.05, 0.9995, seed=0)
    if depth > 1:
        agent.network = _GPFQNetwork(sum(env.state_shape), 64, env.n_actions)
        for _ in range(depth - 1):
            agent.network.add_hidden_layer()
        agent.optimizer = torch.optim.Adam(agent.network.parameters(), lr=1e-3)
    rng = np.random.default_rng(0)
    state = env.reset()

    def run() -> int:
        nonlocal state
        for _ in range(100):
            action = agent.select_action(state, rng)
            following, reward, done, _ = env.step(action)
            agent.update(state, action, reward, following, done)
            state = env.reset() if done else following
        return 100

    for _ in range(3):
        run()
    return run


@kernel
def _forwards(times, layers, values, tokens, activations):
    for _ in range(times):
        forward_tokens(layers, values, True, tokens, activations)


@kernel
def _backwards(times, layers, values, activations, deltas):
    for _ in range(times):
        backward(layers, values, activations, deltas, 1, np.float32(0.5))


@kernel
def _adams(times, layers, values, first, second, keep, tokens, activations, deltas, gradient):
    for _ in range(times):
        adam(
            layers, values, first, second, keep, True, tokens, activations, deltas, gradient,
            1e-9, 0.9, 0.999, 1e-8, 1.0,
        )  # fmt: skip


def print_breakdown(depth: int, whole: float) -> None:
    """Time the parts of an update on their own."""
    n = make_learner(depth).network
    (activations, deltas), gradient = n.activations(2), np.zeros_like(n.values)
    tokens = np.array([1, 2, 3])
    parts = {
        "two forward passes": (2, _forwards, (n.layers, n.values, tokens, activations)),
        "backward pass": (1, _backwards, (n.layers, n.values, activations, deltas)),
        "Adam with clipping": (
            1,
            _adams,
            (n.layers, n.values, n.first, n.second, n.keep, tokens, activations, deltas, gradient),
        ),
    }
    rest = whole
    for name, (count, run, memory) in parts.items():
        run(1, *memory)
        best = float("inf")
        for _ in range(7):
            start = time.perf_counter()
            run(2000, *memory)
            best = min(best, (time.perf_counter() - start) / 2000 * 1e6)
        rest -= count * best
        print(f"    {name:22} {count * best:6.2f} us")
    print(f"    {'world, and the rest':22} {rest:6.2f} us of {whole:.2f}")


if __name__ == "__main__":
    main()
