"""How fast the world model is: collecting sequences, rollouts with and without the cache, and a planning step.

    python benchmarks/world_speed.py [--run runs/world-1] [--rounds 5] [--write] [--json]

On one core, with the model of a run or, without one, a model of the default size and four blocks with random weights:
what they are does not matter here.

- `collect`: seconds for a million steps of the default mix of behaviours (but for a trained navigator), all cores.
- `cache`: 48 rollouts of 64 steps with the cache, against computing everything anew at each step; in turns, minima.
  Probabilities of both, along the same sequence, must agree to 1e-5.
- `plan`: milliseconds of a planning step, 6 actions x 8 rollouts x 10 steps, at the middle and the 99th percentile.
- `train`, with a run: the seconds of its gradient steps, each at the depth that it had then, against all of them at the
  depth that it ended with. The seconds of a step at each depth are medians, measured in turns; what is pruned counts.

`--write` puts the table into docs/world-model.md.
"""

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from documents import insert

from gpf.navigation.policies import make_policy
from gpf.plume.scenario import Scenario
from gpf.plume.tokens import OBSERVATION_SIZES
from gpf.reports.tables import markdown_table
from gpf.runs.folder import read_log
from gpf.studies.imagination import latencies, make_planner, quantiles
from gpf.world_model.batches import Windows
from gpf.world_model.collection import Wandering, collect
from gpf.world_model.imagination import imagine
from gpf.world_model.model import WorldModel, next_token_loss
from gpf.world_model.planner import Scoring
from gpf.world_model.sequences import BOS_CODE, FIRST_ACTION, read_dataset
from gpf.world_model.trained import TrainedWorld, load_world, read_run_config

STEPS, ROLLOUTS = 64, 48


def main() -> None:
    """Measure, print, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, help="of gpf train world; without it, random weights")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write", action="store_true", help="put the table into docs/world-model.md")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    world = load_world(arguments.run) if arguments.run else random_world()
    steps, seconds = collecting()
    cached, plain, off = rollouts(world.model, arguments.rounds)
    plans = {
        follow: quantiles(latencies(make_planner(world, follow, Scoring()))) for follow in ("repeat", "cast-and-surge")
    }
    grown = training(arguments.run, arguments.rounds) if arguments.run else None
    blocks = len(world.model.blocks)
    parameters = sum(parameter.numel() for parameter in world.model.parameters())
    rows = [
        [f"{steps:,} steps of three behaviours collected, all cores", f"{seconds:.1f} s"],
        [
            f"{ROLLOUTS} rollouts of {STEPS} steps, {blocks} blocks, {parameters:,} parameters, one core",
            f"{cached:.2f} s with the cache, {plain:.1f} s without: {plain / cached:.0f} times as fast;"
            f" probabilities differ by at most {off:.1g}",
        ],
        *(
            [
                f"a planning step, 48 rollouts of 10 steps, which {words}, one core",
                f"p50 {plans[follow]['p50_ms']:.0f} ms, p99 {plans[follow]['p99_ms']:.0f} ms",
            ]
            for follow, words in (("repeat", "repeat their action"), ("cast-and-surge", "follow cast-and-surge"))
        ),
    ]
    if grown:
        rows.append(
            [
                f"{grown['steps']:,} gradient steps of a run that grew to {blocks} blocks, one core",
                f"{grown['grown']:.0f} s, and {grown['fixed']:.0f} s with {blocks} blocks all the time:"
                f" {1 - grown['grown'] / grown['fixed']:.0%} less",
            ]
        )
    text = markdown_table(["quantity", "measured"], rows)
    print(text)
    if arguments.write:
        insert("docs/world-model.md", "speed", text)
    if arguments.json:
        print(json.dumps({"collect": seconds, "cache": plain / cached, "off": off, "plan": plans, "train": grown}))


def random_world() -> TrainedWorld:
    """The default model, with random weights."""
    torch.manual_seed(0)
    model = WorldModel(depth=4).eval()
    torch.nn.init.normal_(model.head.weight, std=0.1)
    return TrainedWorld(model, Scenario.of("reference"), np.zeros(392, np.float32), 0.5)


def collecting() -> tuple[int, float]:
    """Steps, and seconds that they took."""
    shares = {"random": 0.15, "reactive": 0.2, "cast-and-surge": 0.65}
    behaviours: dict[str, Any] = {
        name: (make_policy(name) if name == "random" else Wandering(make_policy(name), 0), share)
        for name, share in shares.items()
    }
    scenario = Scenario.of("reference")
    collect(behaviours, scenario, 1000)  # compiles
    started = time.perf_counter()
    steps = collect(behaviours, scenario, 1_000_000).steps
    return steps, time.perf_counter() - started


def rollouts(model: WorldModel, rounds: int) -> tuple[float, float, float]:
    """Least seconds with and without the cache, and how far probabilities are apart."""
    random = np.random.default_rng(0)
    history = torch.tensor([[BOS_CODE, int(random.integers(392))]])
    actions = torch.from_numpy(random.integers(6, size=(ROLLOUTS, STEPS)))
    times: dict[bool, list[float]] = {True: [], False: []}
    room = model.context - 1  # with a single observation before them, 64 steps fit
    for _ in range(rounds):
        for cached in (True, False):
            started = time.perf_counter()
            imagine(model, history, actions, ROLLOUTS, cached, generator=torch.Generator().manual_seed(0), room=room)
            times[cached].append(time.perf_counter() - started)
    codes = torch.empty(4, model.places, dtype=torch.long)
    codes[:, 0] = BOS_CODE
    codes[:, 1::2] = torch.from_numpy(random.integers(392, size=(4, model.context)))
    codes[:, 2::2] = FIRST_ACTION + torch.from_numpy(random.integers(6, size=(4, model.context)))
    with torch.inference_mode():
        full = model(codes)
        _, cache = model.read(codes[:, :1])
        steps = torch.stack([model.extend(codes[:, at : at + 1], cache) for at in range(1, model.places)], dim=1)
    off = float((shares(steps) - shares(full[:, 1:])).abs().max())
    if off > 1e-5:
        raise RuntimeError(f"cache: probabilities differ by {off}; accepted: at most 1e-5")
    return min(times[True]), min(times[False]), off


def shares(logits: torch.Tensor) -> torch.Tensor:
    """The probabilities of the three streams, side by side."""
    return torch.cat([part.double().softmax(-1) for part in logits.split(OBSERVATION_SIZES, dim=-1)], dim=-1)


def training(run: Path, rounds: int) -> dict[str, float]:
    """Steps of a run, and the seconds that they take: at the depths that it had, and all at the last of them."""
    config, lines = read_run_config(run), read_log(run, "metrics")
    windows = Windows(read_dataset(Path(config.data)), config.context)
    depths = sorted({line["depth"] for line in lines})
    times: dict[int, list[float]] = {depth: [] for depth in depths}
    models = {depth: WorldModel(config.width, config.heads, depth, config.context) for depth in depths}
    for turn in range(10 * rounds + 1):
        for depth, model in models.items():
            codes = windows.draw(config.batch, (turn,))
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
            started = time.perf_counter()
            loss, _ = next_token_loss(model(codes[:, :-1]), codes)
            loss.sum().backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), config.gradient_clip)
            optimizer.step()
            if turn:
                times[depth].append(time.perf_counter() - started)
    step = {depth: statistics.median(some) for depth, some in times.items()}
    counts = np.diff([0, *(line["step"] for line in lines)])
    grown = sum(int(count) * step[line["depth"]] for count, line in zip(counts, lines, strict=True))
    return {"steps": int(counts.sum()), "grown": grown, "fixed": int(counts.sum()) * step[lines[-1]["depth"]]}


if __name__ == "__main__":
    main()
