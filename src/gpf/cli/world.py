"""`gpf world`: sequences of plume tokens, a model of them, and its applications."""

import dataclasses
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpf.cli import parse
from gpf.cli.names import check_scenarios
from gpf.cli.options import Positional, UsageError
from gpf.cli.shared import check_folder, show_markdown, typed_command
from gpf.settings import unknown

# Heavy imports are inside the commands, which lets `gpf --help` answer at once.


@dataclass
class Data:
    """Collect sequences of tokens: observations and actions of several policies in the plume."""

    out: Path = Path("runs/world-data")
    """Folder of the sequences; it must be new."""
    steps: int = 1_000_000
    """Minimum number of environment steps; the last episode is completed."""
    scenario: str = "reference"
    """Where: a preset ({presets}) or a path to a scenario's .json file."""
    seed: int = 0
    """Seed of the episodes; no two seeds share one, and none is used in evaluations."""
    navigator: Path | None = None
    """Folder of a run of gpf train, whose navigator is one of the policies."""
    random: float = 0.1
    """Share of the steps with random actions."""
    reactive: float = 0.15
    """Share of the steps of the reactive baseline."""
    cast_and_surge: float = 0.45
    """Share of the steps of cast-and-surge."""
    navigator_share: float = 0.3
    """Share of the steps of the navigator, if one is given."""
    wandering: float = 0.03
    """Probability per step that a policy acts at random for a while, which shows the model what good policies never
    do."""
    to_minari: str | None = None
    """Also write a Minari dataset of this name, such as plume/mixed-v0. Needs the extra data."""
    from_minari: str | None = None
    """Read the sequences from this Minari dataset instead. Needs the extra data."""

    def __call__(self) -> None:
        """Collect, and write."""
        check_scenarios([self.scenario])
        if self.out.exists():
            raise ValueError(f"{self.out} exists; choose a new folder with --out")
        if not 0.0 <= self.wandering <= 1.0:
            raise ValueError(f"wandering must be from 0 to 1, got {self.wandering}")
        if self.to_minari is not None:
            from gpf.world_model.sequences import find_minari

            find_minari()
        check_folder(self.out.parent, "--out")
        from gpf.navigation.agents import load_navigator
        from gpf.navigation.policies import Policy, make_policy
        from gpf.plume.scenario import Scenario
        from gpf.runs.progress import steps_progress
        from gpf.world_model.collection import Wandering, collect
        from gpf.world_model.sequences import read_minari, write_dataset, write_minari

        scenario = Scenario.of(self.scenario)
        if self.from_minari is not None:
            dataset = read_minari(self.from_minari)
            dataset.about.setdefault("world", dataclasses.asdict(scenario))
            dataset.about.setdefault("behaviours", [self.from_minari])
        else:
            behaviours: dict[str, tuple[Policy, float]] = {"random": (make_policy("random"), self.random)}
            for name, share in (("reactive", self.reactive), ("cast-and-surge", self.cast_and_surge)):
                behaviours[name] = (Wandering(make_policy(name), self.seed, self.wandering), share)
            if self.navigator is not None:
                policy = load_navigator(self.navigator).policy
                behaviours["navigator"] = (Wandering(policy, self.seed, self.wandering), self.navigator_share)
            with steps_progress(str(self.out), self.steps) as progress:
                dataset = collect(behaviours, scenario, self.steps, self.seed, progress)
        write_dataset(dataset, self.out)
        if self.to_minari is not None:
            write_minari(dataset, self.to_minari)
        print(f"written: {self.out}: {dataset.steps:,} steps in {len(dataset):,} sequences")


@dataclass
class Evaluate:
    """Measure trained world models on held-out sequences, next to baselines, and draw what they predict."""

    runs: Positional[tuple[Path, ...]]
    """Folders of runs that gpf train world made; runs that differ only in their seeds are grouped."""
    page: Path = Path("runs")
    """Folder of the page, its figures and its numbers."""
    name: str = "world-model"
    """Name of the page."""

    def __call__(self) -> None:
        """Measure, print, and write."""
        from gpf.studies.world_model import evaluate_worlds

        if not self.runs:
            raise ValueError("runs must be at least one folder of gpf train world")
        check_folder(self.page, "--page")
        path = evaluate_worlds(self.runs, self.page, self.name, typed_command())
        show_markdown(path.read_text())
        print(f"written: {path}")


@dataclass
class Plan:
    """Search for the source with a planner that predicts the outcome of each action, over held-out episodes."""

    run: Positional[Path]
    """Folder of a run that gpf train world made."""
    episodes: int = 500
    """Number of held-out episodes."""
    seed: int = 0
    """Which block of held-out episodes; no two blocks share one."""
    horizon: int = 10
    """Length of a rollout, steps."""
    rollouts: int = 8
    """Rollouts of each of the six actions."""
    temperature: float = 1.0
    """Temperature of the model's distributions."""
    follow: str = "cast-and-surge"
    """Behaviour of a rollout after its first action: repeat it (repeat), act as cast-and-surge, or act as the navigator
    of a run of gpf train (its folder). All see tokens only."""
    whiff: float = 1.0
    """Score of a predicted step with a whiff."""
    upwind: float = 3.0
    """Score per metre of upwind progress in a rollout, 1/m."""
    blank: float = 0.0
    """Penalty for a predicted step without a whiff."""
    value: float = 0.0
    """Weight of the value that the navigator of --follow gives to the end of a rollout."""
    margin: float = 1.0
    """By how much an action must score higher than the one of --follow to be taken instead."""
    page: Path | None = None
    """Folder for a page with the table. Default: no page."""
    name: str = "planner"
    """Name of the page."""
    beside: Path | None = None
    """Numbers of gpf compare (its .json), whose navigators the page shows too."""
    json: bool = False
    """Print one JSON object on the last line in place of the table."""

    def __call__(self) -> None:
        """Time a planning step, evaluate, and print."""
        from gpf.reports.pages import write_page
        from gpf.runs.progress import episode_progress
        from gpf.studies.imagination import (
            baselines_of,
            check_held_out,
            held_out,
            latencies,
            make_planner,
            navigators_beside,
            outcome_table,
            planner_page,
            quantiles,
        )
        from gpf.world_model.planner import Scoring
        from gpf.world_model.trained import load_world

        if self.page is not None:
            check_folder(self.page, "--page")
        world = load_world(self.run)
        beside = "" if self.beside is None else navigators_beside(self.beside, world.scenario)
        check_held_out(self.episodes, self.seed)
        scoring = Scoring(self.whiff, self.upwind, self.blank, self.value)
        options: dict[str, Any] = {
            name: getattr(self, name) for name in ("horizon", "rollouts", "temperature", "margin", "seed")
        }
        planner = make_planner(world, self.follow, scoring, **options)
        times = quantiles(latencies(planner))
        outcomes = {}
        for name, policy in {f"planner, follows {self.follow}": planner, **baselines_of(world.scenario)}.items():
            with episode_progress(name, self.episodes) as progress:
                outcomes[name] = held_out(policy, world.scenario, self.episodes, self.seed, progress).summary()
        if self.page is not None:
            numbers = {"kind": "planner", "command": typed_command(), "outcomes": outcomes, "beside": beside,
                       "rollouts": 6 * self.rollouts, "horizon": self.horizon, "latency": times}  # fmt: skip
            write_page(self.page, self.name, numbers, planner_page(numbers, self.name), {})
        if self.json:
            print(json.dumps({"run": str(self.run), **times, "outcomes": outcomes}))
            return
        show_markdown(outcome_table(outcomes))
        print(
            f"A planning step, {6 * self.rollouts} rollouts of {self.horizon} steps on one core: p50"
            f" {times['p50_ms']:.1f} ms, p99 {times['p99_ms']:.1f} ms."
        )


@dataclass
class Dream:
    """Train navigators inside the world model only, and test them in the plume, over held-out episodes."""

    run: Positional[Path]
    """Folder of a run that gpf train world made."""
    epochs: int = 150
    """Rollouts to learn from, each of 128 lanes of 64 predicted steps."""
    seeds: int = 1
    """Number of navigators, of the seeds from --seed on."""
    seed: int = 0
    """Seed of the first navigator's weights and rollouts; also the block of held-out episodes."""
    episodes: int = 2000
    """Number of held-out episodes."""
    navigator: Path | None = None
    """Folder of a run of gpf train, whose navigator is tested too; it sees the same tokens."""
    page: Path | None = None
    """Folder for a page with the table. Default: no page."""
    name: str = "dream-navigators"
    """Name of the page."""
    json: bool = False
    """Print one JSON object on the last line in place of the table."""

    def __call__(self) -> None:
        """Learn, evaluate, and print."""
        from gpf.reports.pages import write_page
        from gpf.runs.progress import steps_progress
        from gpf.studies.imagination import (
            baselines_of,
            check_held_out,
            dream_page,
            held_out,
            imagined_navigator,
            make_follow,
            outcome_table,
            passed_by,
        )
        from gpf.world_model.trained import load_world

        for name in ("epochs", "seeds"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        check_held_out(self.episodes, self.seed + self.seeds - 1)
        if self.page is not None:
            check_folder(self.page, "--page")
        world = load_world(self.run)
        learnt = None if self.navigator is None else make_follow(str(self.navigator), world.scenario)
        outcomes, curves, passed = {}, [], list[float | None]()
        with steps_progress(f"in imagination, {self.run}", self.seeds * self.epochs) as progress:
            for n in range(self.seeds):
                seed, before = self.seed + n, n * self.epochs
                navigator, curve = imagined_navigator(world, self.epochs, seed, _after(progress, before))
                curves.append(curve)
                result = held_out(navigator, world.scenario, self.episodes, seed, paths=200)
                passed.append(passed_by(result))
                outcomes[f"learned in imagination only, seed {seed}"] = result.summary()
        if learnt is not None:
            told = held_out(learnt, world.scenario, self.episodes, self.seed).summary()
            outcomes["learned in the plume, sees the same tokens"] = told
        for name, policy in baselines_of(world.scenario).items():
            outcomes[name] = held_out(policy, world.scenario, self.episodes, self.seed).summary()
        if self.page is not None:
            numbers = {"kind": "dreams", "command": typed_command(), "outcomes": outcomes,
                       "imagined_success": curves, "passed_by": passed}  # fmt: skip
            path = write_page(self.page, self.name, numbers, dream_page(numbers, self.name), {})
        if self.json:
            print(json.dumps({"run": str(self.run), "imagined_success": curves, "outcomes": outcomes}))
            return
        show_markdown(outcome_table(outcomes))
        for n, curve in enumerate(curves):
            if ends := [share for share in curve if share is not None]:
                print(f"seed {self.seed + n}: {ends[-1]:.1%} of the last imagined episodes found an imagined source")
        if self.page is not None:
            print(f"written: {path}")


def _after(progress: Callable[[int], None], before: int) -> Callable[[int], None]:
    """Progress of a part, with the share that is done."""
    return lambda done: progress(before + done)


COMMANDS: dict[str, type] = {"data": Data, "evaluate": Evaluate, "plan": Plan, "dream": Dream}
"""By name, what follows `gpf world`."""


def world(arguments: Sequence[str]) -> None:
    """Run the command that the first argument names."""
    if not arguments:
        raise UsageError(f"gpf world needs a COMMAND: {', '.join(COMMANDS)}")
    if arguments[0] in ("-h", "--help"):
        print(_usage())
        sys.exit(0)
    name = arguments[0]
    if name not in COMMANDS:
        raise UsageError(f"gpf world: {unknown('command', name, COMMANDS)}")
    parse(COMMANDS[name], arguments[1:], f"gpf world {name}")()


def _usage() -> str:
    lines = [f"  {name:<8}  {(command.__doc__ or '').splitlines()[0]}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "usage: gpf world COMMAND [OPTIONS]",
            "",
            "A world model of the plume: sequences of tokens, a model of them (gpf train world), and its uses.",
            "",
            *lines,
            "",
            "gpf world COMMAND --help lists the options of a command.",
        ]
    )
