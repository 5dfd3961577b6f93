"""Steps per second of recurrent training next to sb3-contrib's RecurrentPPO, and time to 95 % of the reference world.

    python benchmarks/recurrent_speed.py [--repeats 5] [--threads 1] [--write] [--json]
    python benchmarks/recurrent_speed.py --time [--seeds 900 901 902] [--limit 300] [--threads 2]

Equal settings: 128 lanes of the same native world, the paper's 22 inputs, rollouts of 64 steps, minibatches of as many
environment steps, epochs, learning rate, entropy bonus, GAE lambda and clip; 64 units of memory, shared by policy and
value, and no further layer. RecurrentPPO has an LSTM, ours a minimal GRU or a GRU. A repeat is some rollouts with their
gradient steps of each contender in turn; the ratio is the median over repeats of the ratios within a repeat.

`--time` trains our default until two evaluations in a row, of 500 held-out episodes, find the source in 95 %; the clock
stops during evaluations.
"""

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from documents import insert

from gpf.reports.tables import markdown_table

ROLLOUTS = {"mingru": 10, "gru": 3, "RecurrentPPO": 1}
"""Rollouts of a repeat: about as long for each contender."""
NAMES = {
    "mingru": "gpf, minimal GRU",
    "gru": "gpf, GRU",
    "RecurrentPPO": "sb3-contrib RecurrentPPO, LSTM",
}
EPISODES = 500
TARGET = 0.95


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--write", action="store_true", help="put the table into docs/navigators.md")
    parser.add_argument("--json", action="store_true", help="end with one JSON object of ratios")
    parser.add_argument("--time", action="store_true", help="measure the time to 95 %% instead")
    parser.add_argument("--seeds", type=int, nargs="+", default=[900, 901, 902])
    parser.add_argument("--limit", type=float, default=300.0, help="seconds of learning at most")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.time:
        for seed in arguments.seeds:
            print(f"seed {seed}: {time_to_target(seed, arguments.limit, arguments.threads)}", flush=True)
        return
    speeds = measure(arguments.repeats, arguments.threads)
    ratios = {
        name: statistics.median(a / b for a, b in zip(speeds[name], speeds["RecurrentPPO"], strict=True))
        for name in speeds
    }
    rows = [
        [NAMES[name], f"{statistics.median(values):,.0f}", f"{ratios[name]:.1f}"] for name, values in speeds.items()
    ]
    text = markdown_table(["contender", "steps/s", "times RecurrentPPO"], rows)
    print(text)
    if arguments.write:
        insert("docs/navigators.md", "recurrent-speed", text)
    if arguments.json:
        print(json.dumps(ratios))


def measure(repeats: int, threads: int) -> dict[str, list[float]]:
    """Steps per second of each contender in each repeat."""
    contenders: dict[str, Callable[[int], int]] = {
        "mingru": ours("mingru", threads),
        "gru": ours("gru", threads),
        "RecurrentPPO": theirs(threads),
    }
    for run in contenders.values():
        run(1)  # compile
    speeds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(repeats):
        for name, run in contenders.items():
            started = time.perf_counter()
            steps = run(ROLLOUTS[name])
            speeds[name].append(steps / (time.perf_counter() - started))
    return speeds


def settings(**changes: Any) -> Any:
    """Our configuration, of a network whose depth is fixed."""
    from gpf.navigation.config import Config

    return Config.of(
        learner="recurrent", gpf=False, depth=1, lanes=128, horizon=64, critic="shared", ema=0.0, **changes
    )


def ours(cell: str, threads: int) -> Callable[[int], int]:
    """Runs some of our rollouts; returns their steps."""
    from gpf.navigation.agents import make_learner, make_network
    from gpf.plume.scenario import Scenario

    config = settings(cell=cell, seed=900)
    learner = make_learner(config, Scenario.of(config.scenario), make_network(config), threads)

    def run(rollouts: int) -> int:
        for _ in range(rollouts):
            learner.epoch(0.0)
        return rollouts * config.learner.lanes * config.learner.horizon

    return run


def theirs(threads: int) -> Callable[[int], int]:
    """Runs some rollouts of RecurrentPPO, with our settings, on our lanes; returns their steps."""
    from sb3_contrib import RecurrentPPO

    from gpf.plume.sb3 import PlumeVecEnv
    from gpf.plume.scenario import Scenario

    s = settings().learner
    world = Scenario.preset("reference").rewarded("search", s.discount)
    lanes = PlumeVecEnv(s.lanes, threads=threads, scenario=world, observation="onehot")
    memory = {"lstm_hidden_size": 64, "shared_lstm": True, "enable_critic_lstm": False, "net_arch": []}
    model = RecurrentPPO(
        "MlpLstmPolicy", lanes, n_steps=s.horizon, batch_size=s.minibatch, n_epochs=s.update_epochs, gamma=s.discount,
        gae_lambda=s.gae_lambda, learning_rate=s.learning_rate, ent_coef=s.entropy, vf_coef=s.value_weight,
        max_grad_norm=s.gradient_clip, policy_kwargs=memory, seed=900, device="cpu",
    )  # fmt: skip

    def run(rollouts: int) -> int:
        before = model.num_timesteps
        model.learn(total_timesteps=rollouts * s.lanes * s.horizon, reset_num_timesteps=False)
        return int(model.num_timesteps - before)

    return run


def time_to_target(seed: int, limit: float, threads: int) -> str:
    """Seconds until the second of two evaluations in a row at the target, of the default of `--learner recurrent`."""
    from gpf.navigation.acting import NetworkPolicy
    from gpf.navigation.agents import make_learner, make_network
    from gpf.navigation.config import Config
    from gpf.navigation.evaluate import evaluate
    from gpf.navigation.seeds import BLOCK, HELD_OUT
    from gpf.plume.scenario import Scenario

    config = Config.of(learner="recurrent", gpf=False, seed=seed)
    world = Scenario.of(config.scenario)
    learner = make_learner(config, world, make_network(config), threads)
    first = HELD_OUT + (BLOCK - 1) * BLOCK  # a block that no run reports on
    seconds, found = 0.0, [0.0]
    for epoch in range(config.epochs):
        started = time.perf_counter()
        learner.epoch(epoch / config.epochs)
        seconds += time.perf_counter() - started
        if (epoch + 1) % config.learner.round_epochs == 0:
            network = learner.network
            if learner.average is not None:
                network = network.with_values(learner.average.values)
            policy = NetworkPolicy(network, config.learner.observation, config.learner.acting, world)
            found.append(float(evaluate(policy, world, EPISODES, first, threads=threads).success.mean()))
            if min(found[-2:]) >= TARGET:
                return f"{TARGET:.0%} after {seconds:.1f} s"
        if seconds > limit:
            break
    best = max(min(pair) for pair in itertools.pairwise(found))
    return f"never {TARGET:.0%} in {seconds:.0f} s, best {best:.1%}"


if __name__ == "__main__":
    main()
