"""`gpf world`: sequences of plume tokens, a model of them, and what it is good for."""

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from gpf.cli.shared import typed_command

# Heavy imports stand inside the commands, so that `gpf --help` answers at once.


@dataclass
class Data:
    """Let several behaviours walk in the plume, and keep what they saw and did as sequences of tokens."""

    out: Path = Path("runs/world-data")
    """Folder of the sequences, which must be new."""
    steps: int = 1_000_000
    """Steps, at least; episodes are whole."""
    scenario: str = "reference"
    """Where: a preset (paper, reference) or a path to a scenario's .json file."""
    seed: int = 0
    """Which episodes; no two seeds share one, and none is ever evaluated on."""
    navigator: Path | None = None
    """A run of gpf train whose navigator is one of the behaviours."""
    random: float = 0.1
    """Share of the steps with random actions."""
    reactive: float = 0.15
    """Share of the reactive baseline's."""
    cast_and_surge: float = 0.45
    """Share of cast-and-surge's."""
    navigator_share: float = 0.3
    """Share of the navigator's, if one is given."""
    wandering: float = 0.03
    """Chance, in a step, that a behaviour does something random for a while; without it the model would know nothing of
    what good behaviours never do."""
    to_minari: str | None = None
    """Also write them as a Minari dataset of this name, such as plume/mixed-v0."""
    from_minari: str | None = None
    """Take the sequences from a Minari dataset instead."""

    def __call__(self) -> None:
        """Collect, and write."""
        from gpf.navigation.agents import load_navigator
        from gpf.navigation.policies import Policy, make_policy
        from gpf.plume.scenario import Scenario
        from gpf.runs.progress import steps_progress
        from gpf.world_model.collection import Wandering, collect
        from gpf.world_model.sequences import read_minari, write_dataset, write_minari

        if self.out.exists():
            raise ValueError(f"out: {self.out} exists; accepted: a new folder")
        if not 0.0 <= self.wandering <= 1.0:
            raise ValueError(f"wandering: {self.wandering}; accepted: 0 to 1")
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
    """Measure trained world models on held-out sequences, against baselines, and look at what they imagine."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of runs that gpf train world made; runs that differ in nothing but their seeds are taken together."""
    page: Path = Path("runs")
    """Folder of the page, its figures and its numbers."""
    name: str = "world-model"
    """Of the page."""

    def __call__(self) -> None:
        """Measure, print, and write."""
        from gpf.studies.world_model import evaluate_worlds

        if not self.runs:
            raise ValueError("runs must be at least one folder of gpf train world")
        path = evaluate_worlds(self.runs, self.page, self.name, typed_command())
        print(path.read_text())
        print(f"written: {path}")


@dataclass
class Plan:
    """Let a planner that imagines before it acts find the source, over held-out episodes."""

    run: tyro.conf.Positional[Path]
    """Folder of a run that gpf train world made."""
    episodes: int = 500
    """Number of held-out episodes."""
    seed: int = 0
    """Which block of them."""
    horizon: int = 10
    """Steps of a rollout."""
    rollouts: int = 8
    """Rollouts of each of the six actions."""
    temperature: float = 1.0
    """Of the model's distributions."""
    follow: str = "cast-and-surge"
    """What a rollout does after its first action: repeat it, follow cast-and-surge, or follow the navigator of a run of
    gpf train (its folder); all see tokens only."""
    whiff: float = 1.0
    """Score of an imagined step with a smell."""
    upwind: float = 3.0
    """Score of an imagined metre against the wind."""
    blank: float = 0.0
    """Taken off for an imagined step without a smell."""
    value: float = 0.0
    """Weight of what the navigator that is followed thinks of a rollout's end."""
    margin: float = 1.0
    """By how much another action must score better than that of whom is followed to be taken instead."""
    page: Path | None = None
    """Folder of a page with the table; None for none."""
    name: str = "planner"
    """Of the page."""
    beside: Path | None = None
    """Numbers of a gpf compare (its .json), whose navigators the page shows too."""
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
        about = (
            f"A planning step, {6 * self.rollouts} rollouts of {self.horizon} steps on one core: p50"
            f" {times['p50_ms']:.1f} ms, p99 {times['p99_ms']:.1f} ms."
        )
        if self.page is not None:
            numbers = {"kind": "planner", "command": typed_command(), "outcomes": outcomes, "about": about,
                       "beside": beside}  # fmt: skip
            write_page(self.page, self.name, numbers, planner_page(numbers, self.name), {})
        if self.json:
            print(json.dumps({"run": str(self.run), **times, "outcomes": outcomes}))
            return
        print(outcome_table(outcomes))
        print(about)


@dataclass
class Dream:
    """Train navigators in imagination only, and let them loose in the plume, over held-out episodes."""

    run: tyro.conf.Positional[Path]
    """Folder of a run that gpf train world made."""
    epochs: int = 150
    """Rollouts to learn from: 128 lanes of 64 imagined steps each."""
    seeds: int = 1
    """How many navigators."""
    seed: int = 0
    """Of the first navigator's weights and of what is imagined; also which block of held-out episodes."""
    episodes: int = 2000
    """Number of held-out episodes."""
    navigator: Path | None = None
    """A run of gpf train, whose navigator learnt in the plume: it is let loose too, and sees the same tokens."""
    page: Path | None = None
    """Folder of a page with the table; None for none."""
    name: str = "dream-navigators"
    """Of the page."""
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
                outcomes[f"learnt in imagination only, seed {seed}"] = result.summary()
        if learnt is not None:
            told = held_out(learnt, world.scenario, self.episodes, self.seed).summary()
            outcomes["learnt in the plume, sees the same tokens"] = told
        for name, policy in baselines_of(world.scenario).items():
            outcomes[name] = held_out(policy, world.scenario, self.episodes, self.seed).summary()
        if self.page is not None:
            numbers = {"kind": "dreams", "command": typed_command(), "outcomes": outcomes,
                       "imagined_success": curves, "passed_by": passed}  # fmt: skip
            path = write_page(self.page, self.name, numbers, dream_page(numbers, self.name), {})
        if self.json:
            print(json.dumps({"run": str(self.run), "imagined_success": curves, "outcomes": outcomes}))
            return
        print(outcome_table(outcomes))
        for n, curve in enumerate(curves):
            if ends := [share for share in curve if share is not None]:
                print(f"seed {self.seed + n}: {ends[-1]:.1%} of the last imagined episodes found an imagined source")
        if self.page is not None:
            print(f"written: {path}")


def _after(progress: Callable[[int], None], before: int) -> Callable[[int], None]:
    """Progress of a part of something, of which so much is done."""
    return lambda done: progress(before + done)


@dataclass
class World:
    """Imagine the plume: sequences of tokens, a model of them, and a planner in it."""

    command: tyro.conf.OmitSubcommandPrefixes[
        Annotated[Data, tyro.conf.subcommand("data")]
        | Annotated[Evaluate, tyro.conf.subcommand("evaluate")]
        | Annotated[Plan, tyro.conf.subcommand("plan")]
        | Annotated[Dream, tyro.conf.subcommand("dream")]
    ]

    def __call__(self) -> None:
        """Do it."""
        self.command()
