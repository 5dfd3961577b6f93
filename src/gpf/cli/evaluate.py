"""Commands for policies and worlds: evaluate, scenario, and compile."""

import json
import tempfile
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from gpf.cli.names import POLICIES, check_policy, is_baseline
from gpf.cli.options import Positional
from gpf.cli.shared import check_writable, console
from gpf.plume.scenario import Scenario
from gpf.zoo import run_folder

if TYPE_CHECKING:
    from gpf.navigation.evaluate import Evaluation
    from gpf.navigation.policies import Policy


@dataclass(frozen=True)
class Pair:
    """A policy in a world."""

    policy: "Policy"
    scenario: Scenario
    about: dict[str, Any]
    """What the result says of both, before its numbers."""

    @property
    def title(self) -> str:
        """Who, where, and what was changed there."""
        who = [self.about[name] for name in ("policy", "checkpoint", "acting", "odometry", "imu") if name in self.about]
        where = [self.about["scenario"], *self.about.get("set", ())]
        return f"{' '.join(who)} on {' '.join(where)}"

    @property
    def file(self) -> str:
        """What the result says of both, as the name of a file; other pairs may have the same."""
        parts = [part for value in self.about.values() for part in ([value] if isinstance(value, str) else value)]
        stem = [Path(part).stem if part.endswith(".json") else part.replace(":", "-") for part in parts]
        pieces = [piece.lstrip("./") for part in stem for piece in Path(part).parts]  # neither "..", nor a hidden file
        return "-".join(piece for piece in pieces if piece)


@dataclass
class Evaluate:
    """Measure how well policies find the source, over held-out episodes.

    One policy in one scenario gives a detailed table; several policies, or several scenarios, give a table with a row
    for each combination. Each has a figure of trajectories and arrival times in runs/evaluate.
    """

    policies: Positional[tuple[str, ...]] = ("cast-and-surge",)
    """Who searches: a policy of docs/opponents.md such as cast-and-surge or infotaxis, NAME:FILE.json for one with the
    parameters that gpf tune found, folders of runs that gpf train made, or navigators that come with gpf:
    zoo:reference and zoo:turbulent."""
    scenarios: tuple[str, ...] = ()
    """Where: presets ({presets}) or paths to .json files. Default: the world that a run was trained in, and
    reference for the others."""
    set: tuple[str, ...] = ()
    """Changes to every scenario, as FIELD=VALUE, for example wind_speed=2 sensor_noise=0.002; gpf scenario lists the
    fields, in the units of docs/plume.md."""
    checkpoint: Literal["last", "best"] = "last"
    """For runs: the network at the end, or the one that did best in validation."""
    acting: Literal["greedy", "sampled"] | None = None
    """For runs: take the best action, or draw it from the policy. Default: as the run was trained for."""
    odometry: Literal["perfect", "filter"] = "perfect"
    """What a policy that reckons its place knows of its own motion: the truth, or what a filter makes of an IMU, the
    wind vane and contacts with the plume; see docs/odometry.md."""
    imu: Literal["industrial", "drone", "consumer"] | None = None
    """Grade of the simulated IMU that the filter uses. Default: drone."""
    episodes: int = 2000
    """Number of episodes."""
    seed: int = 0
    """Which block of held-out episodes; no two blocks share one. gpf train evaluates on the block of the run's seed."""
    threads: int | None = None
    """Threads to step worlds with; the result does not depend on it. Default: one per core, if episodes are many."""
    figure: Path | None = None
    """Where to write the figure (.png), if there is only one. Default: runs/evaluate/POLICY-SCENARIO.png."""
    paths: int = 200
    """Number of successful, and of failed, episodes whose trajectories the figure shows."""
    animation: Path | None = None
    """Also save the first episode as an animation, .gif, .webp or .mp4, if there is only one policy and scenario."""
    json: bool = False
    """Print one JSON object on the last line in place of the table."""

    def __call__(self) -> None:
        """Evaluate every policy in every scenario, print, and write the figures."""
        self._check()
        pairs = [pair for name in self.policies for pair in self._pairs(name)]
        if len(pairs) > 1 and (self.figure or self.animation):
            option = "--figure" if self.figure else "--animation"
            raise ValueError(f"{option} needs one policy and one scenario, got {len(pairs)} combinations")
        figures = [self.figure] if self.figure else [Path("runs", "evaluate", f"{name}.png") for name in _files(pairs)]
        for figure in figures:
            check_writable(figure, "--figure")
        results = [self._evaluated(pair, figure) for pair, figure in zip(pairs, figures, strict=True)]
        if self.animation is not None:
            self._film(pairs[0])
        if self.json:
            print(json.dumps(results[0] if len(results) == 1 else {"evaluations": results}))
            return
        if len(results) == 1:
            _print_details(results[0], pairs[0].title)
        else:
            _print_all(results)
        print(f"figures: {', '.join(result['figure'] for result in results)}")
        if self.animation is not None:
            print(f"animation: {self.animation}")

    def _check(self) -> None:
        """Refuse mistakes before anything heavy is imported."""
        for name in self.policies:
            check_policy(name)
        own = [_own_world(name) for name in self.policies]  # also where other scenarios are given: it checks the runs
        for world in [Scenario.of(where) for where in self.scenarios] or own:
            world.changed(self.set)
        if all(map(is_baseline, self.policies)) and (self.acting is not None or self.checkpoint != "last"):
            raise ValueError("--acting and --checkpoint are for runs; baselines have neither")
        if self.imu is not None and self.odometry == "perfect":
            raise ValueError("--imu needs --odometry filter")
        from gpf.navigation.seeds import BLOCK

        for option, value, low, high in (("seed", self.seed, 0, BLOCK - 1), ("episodes", self.episodes, 1, BLOCK)):
            if not low <= value <= high:
                raise ValueError(f"{option} must be from {low} to {high}, got {value}")
        if self.paths < 0:
            raise ValueError(f"paths must be at least 0, got {self.paths}")
        if self.figure is not None and self.figure.suffix != ".png":
            raise ValueError(f"figure must be a path that ends in .png, got {str(self.figure)!r}")
        if self.animation is not None:
            from gpf.plume.render import check_animation

            check_animation(self.animation)
            check_writable(self.animation, "--animation")

    def _pairs(self, name: str) -> list[Pair]:
        """A policy in each scenario."""
        from gpf.navigation.agents import load_navigator
        from gpf.navigation.odometry import with_odometry
        from gpf.navigation.policies import make_policy

        about: dict[str, Any] = {"policy": name}
        own, where = Scenario.preset("reference"), "reference"
        if is_baseline(name):
            policy: Any = make_policy(name)
        else:
            navigator = load_navigator(name, self.checkpoint, self.acting)
            policy, own, where = navigator.policy, navigator.scenario, navigator.config.scenario
            about |= {"checkpoint": self.checkpoint, "acting": policy.acting}
        if self.odometry == "filter":
            imu = self.imu or "drone"
            policy = with_odometry(policy, self.odometry, imu)
            about |= {"odometry": self.odometry, "imu": imu}
        worlds = {each: Scenario.of(each) for each in self.scenarios} or {where: own}
        changes = {"set": list(self.set)} if self.set else {}
        return [
            Pair(policy, world.changed(self.set), {**about, "scenario": each, **changes})
            for each, world in worlds.items()
        ]

    def _first_seed(self) -> int:
        from gpf.navigation.seeds import BLOCK, HELD_OUT

        return HELD_OUT + self.seed * BLOCK

    def _evaluated(self, pair: Pair, figure: Path) -> dict[str, Any]:
        """The numbers of a pair, with its figure written."""
        from gpf.navigation.evaluate import evaluate
        from gpf.runs.progress import episode_progress

        with episode_progress(pair.title, self.episodes) as progress:
            result = evaluate(
                pair.policy, pair.scenario, self.episodes, self._first_seed(), threads=self.threads, paths=self.paths,
                progress=progress,
            )  # fmt: skip
        summary = {**pair.about, "seed": self.seed, **result.summary()}
        self._draw(pair, result, summary, figure)
        return {**summary, "figure": str(figure)}

    def _draw(self, pair: Pair, result: "Evaluation", summary: dict[str, Any], figure: Path) -> None:
        from gpf.navigation.figures import evaluation_figure
        from gpf.reports.figures import save_figure

        title = f"{pair.title}: {_rate(summary, '.1%')} of {self.episodes}"
        save_figure(evaluation_figure(result, title), figure)

    def _film(self, pair: Pair) -> None:
        from gpf.navigation.evaluate import film
        from gpf.plume.render import save_animation

        assert self.animation is not None
        save_animation(film(pair.policy, pair.scenario, self._first_seed()), self.animation)


def _files(pairs: list[Pair]) -> list[str]:
    """A name for the file of each pair; the second of the same name ends in -2, and so on."""
    names: list[str] = []
    for pair in pairs:
        numbered = (pair.file if n == 1 else f"{pair.file}-{n}" for n in count(1))
        names.append(next(name for name in numbered if name not in names))
    return names


def _own_world(policy: str) -> Scenario:
    """The world that a run was trained in, or the one of baselines; refuses the run of another task."""
    from gpf.runs.folder import RunError, read_config

    if is_baseline(policy):
        return Scenario.preset("reference")
    written = read_config(run_folder(policy))
    task = written.get("task", "plume")  # runs of early versions do not say
    if task != "plume":
        raise RunError(f"{policy} is a run of task {task!r}; gpf evaluate takes navigators (task 'plume')")
    try:
        return Scenario.of(written.get("world", {}))
    except ValueError as error:
        raise RunError(f"{run_folder(policy) / 'config.json'} is damaged ({error})") from None


def _rate(summary: dict[str, Any], form: str) -> str:
    return f"{summary['success']:{form}} [{summary['low']:{form}}, {summary['high']:{form}}]"


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _print_details(summary: dict[str, Any], title: str) -> None:
    """One evaluation as a table."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE, show_header=False, title=Text(title))
    quantiles = " / ".join(_number(summary[f"arrival_q{q}"], ".0f") for q in (5, 25, 50, 75, 95))
    for label, value in [
        ("success", f"{_rate(summary, '.2%')}, 95 % Wilson"),
        ("never arrived", f"{summary['never']:.2%}"),
        ("mean steps to the source", _number(summary["mean_steps"], ".1f")),
        ("5 / 25 / 50 / 75 / 95 % arrived by", f"{quantiles} steps"),
        ("SPL", f"{summary['spl']:.3f}"),
        ("episodes", f"{summary['episodes']:,}"),
        ("speed", f"{summary['steps_per_second']:,.0f} steps/s"),
    ]:
        table.add_row(label, value)
    console().print(table)


def _print_all(summaries: list[dict[str, Any]]) -> None:
    """Many evaluations as a table."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    changes = summaries[0].get("set", [])
    title = f"{summaries[0]['episodes']:,} held-out episodes each"
    table = Table(box=box.SIMPLE, title=Text(f"{title}, with {' '.join(changes)}" if changes else title))
    for title in ("policy", "scenario"):
        table.add_column(title, overflow="fold")
    for title in ("success [95 % CI]", "mean steps", "SPL"):
        table.add_column(title, justify="right", no_wrap=True)
    for one in summaries:
        steps = _number(one["mean_steps"], ".1f")
        cells = (one["policy"], one["scenario"], _rate(one, ".1%"), steps, f"{one['spl']:.3f}")
        table.add_row(*map(Text, cells))
    console().print(table)


@dataclass
class ShowScenario:
    """Print a scenario as JSON, to read or to start one of your own from."""

    scenario: Positional[str] = "reference"
    """A preset ({presets}) or a path to a scenario's .json file."""
    set: tuple[str, ...] = ()
    """Changes, as FIELD=VALUE, for example wind_speed=2 sensor_noise=0.002."""

    def __call__(self) -> None:
        """Print the scenario."""
        print(Scenario.of(self.scenario).changed(self.set).to_json())


@dataclass
class Compile:
    """Compile everything now, once on this machine, so that later commands start at once."""

    def __call__(self) -> None:
        """Run every learner and every policy for a moment."""
        from gpf.navigation.evaluate import evaluate
        from gpf.navigation.policies import make_policy
        from gpf.tasks.plume import TASK
        from gpf.viewer.episodes import Flight

        scenario = Scenario(max_steps=2)
        Flight(scenario, make_policy("random"), 0).frame()
        for name in POLICIES:
            evaluate(make_policy(name), scenario, 1)
        few: dict[str, Any] = {"steps": 1, "lanes": 2, "horizon": 2, "minibatch": 4}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "scenario.json")
            path.write_text(scenario.to_json())
            for n, settings in enumerate(
                (few, {"observation": "onehot", **few}, {"learner": "parallel", **few},
                 {"learner": "online", "episodes": 1})
            ):  # fmt: skip
                config = TASK.of({"scenario": str(path), **settings})
                TASK.training(TASK.create(Path(folder, f"{n}"), config), config, 1).round()
