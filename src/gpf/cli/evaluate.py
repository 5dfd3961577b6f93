"""Commands that look at policies and runs: evaluate, spectra, report, sample, scenario; and compile."""

import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import tyro


@dataclass
class Evaluate:
    """Measure how well a policy finds the source, over held-out episodes."""

    policy: str = "cast-and-surge"
    """Who searches: random, reactive, cast-and-surge, or the folder of a run that gpf train made."""
    checkpoint: Literal["last", "best"] = "last"
    """Of a run: the network at its end, or the one that did best in validation."""
    acting: Literal["greedy", "sampled"] | None = None
    """Of a run: whether actions are the best ones or drawn from the policy; None for what the run was made for."""
    scenario: str | None = None
    """Where: a preset (paper, reference) or a path to a scenario's .json file; None for reference, or for the world
    that the run was trained in."""
    episodes: int = 2000
    """Number of episodes."""
    seed: int = 0
    """Which block of held-out episodes; no two blocks share one."""
    threads: int | None = None
    """Threads to step with; None for one per core, where there are episodes enough. The result is the same."""
    figure: Path | None = None
    """Where to write the figure of trajectories and arrival times (PNG); None for runs/evaluate/POLICY-SCENARIO.png."""
    paths: int = 200
    """Number of successful, and of failed, episodes whose trajectories the figure shows."""
    animation: Path | None = None
    """Also save the first episode as an animation, .gif or .mp4."""
    json: bool = False
    """Print one JSON object on the last line in place of the table."""

    def __call__(self) -> None:
        """Evaluate, print, and write the figure."""
        from gpf.navigation.evaluate import evaluate, film
        from gpf.navigation.figures import evaluation_figure
        from gpf.navigation.seeds import BLOCK, HELD_OUT
        from gpf.plume.render import check_animation, save_animation
        from gpf.reports.figures import save_figure
        from gpf.runs.progress import episode_progress

        policy, scenario, where, about = self._policy()
        who = [part for part in (*Path(self.policy).parts, *about.values(), Path(where).stem) if part and part != "/"]
        if not 0 <= self.seed < BLOCK:
            raise ValueError(f"seed: {self.seed}; accepted: 0 to {BLOCK - 1}")
        if self.paths < 0:
            raise ValueError(f"paths: {self.paths}; accepted: at least 0")
        figure = self.figure or Path("runs", "evaluate", f"{'-'.join(who)}.png")
        if figure.suffix != ".png":
            raise ValueError(f"figure: {str(figure)!r}; accepted: a path that ends in .png")
        _check_writable(figure)
        if self.animation is not None:
            check_animation(self.animation)
            _check_writable(self.animation)
        if not 1 <= self.episodes <= BLOCK:
            raise ValueError(f"episodes: {self.episodes}; accepted: 1 to {BLOCK}")
        first_seed = HELD_OUT + self.seed * BLOCK
        with episode_progress(f"{self.policy} on {where}", self.episodes) as progress:
            result = evaluate(
                policy, scenario, self.episodes, first_seed, threads=self.threads, paths=self.paths, progress=progress
            )
        summary = {"policy": self.policy, "scenario": where, **about, "seed": self.seed, **result.summary()}
        rate = f"{summary['success']:.1%} [{summary['low']:.1%}, {summary['high']:.1%}]"
        save_figure(
            evaluation_figure(
                result, f"{' '.join([self.policy, *about.values()])} on {where}: {rate} of {self.episodes}"
            ),
            figure,
        )
        if self.animation is not None:
            save_animation(film(policy, scenario, first_seed), self.animation)
        if self.json:
            print(json.dumps({**summary, "figure": str(figure)}))
            return
        _print_summary(summary)
        print(f"figure: {figure}")
        if self.animation is not None:
            print(f"animation: {self.animation}")

    def _policy(self) -> tuple[Any, Any, str, dict[str, str]]:
        """The policy, the world to evaluate it in, that world's name, and what else is to be said of the policy."""
        from gpf.navigation.agents import load_navigator
        from gpf.navigation.policies import POLICIES, make_policy
        from gpf.plume.scenario import Scenario

        if self.policy in POLICIES:
            if self.acting is not None or self.checkpoint != "last":
                raise ValueError(
                    f"policy: {self.policy!r} with --acting or --checkpoint; accepted: the folder of a run"
                )
            where = self.scenario or "reference"
            return make_policy(self.policy), Scenario.of(where), where, {}
        if not Path(self.policy).is_dir():
            raise ValueError(f"policy: {self.policy!r}; accepted: {', '.join(POLICIES)}, or the folder of a run")
        navigator = load_navigator(Path(self.policy), self.checkpoint, self.acting)
        about: dict[str, str] = {"checkpoint": self.checkpoint, "acting": navigator.policy.acting}
        if self.scenario is None:
            return navigator.policy, navigator.scenario, navigator.config.scenario, about
        return navigator.policy, Scenario.of(self.scenario), self.scenario, about


@dataclass
class Spectra:
    """Show what growing, pruning and freezing did to the network of a run, by its spectra."""

    run: tyro.conf.Positional[Path]
    """Folder of a run that gpf train made."""
    json: bool = False
    """Print one JSON object on the last line in place of the tables."""

    def __call__(self) -> None:
        """Analyse the run's snapshots, print a table for each, and write the figures."""
        from gpf.tasks.spectra import analyse_run, as_json, draw_run

        moments = analyse_run(self.run)
        paths = draw_run(self.run, moments)
        if self.json:
            print(json.dumps({"run": str(self.run), "moments": as_json(moments)}))
            return
        for moment in moments:
            print(f"{moment.label}\n{moment.inspection}")
            if moment.folds:
                regions = ", ".join(f"{count:.1f}" for count in moment.folds)
                print(f"linear regions on a path between two observations, up to each layer: {regions}")
            print()
        print("written: " + ", ".join(str(path) for path in paths))


@dataclass
class Report:
    """Write a run's report.html: curves, events, what it came to, and settings, in one file."""

    run: tyro.conf.Positional[Path]
    """Folder of a run that gpf train made; it need not be finished."""

    def __call__(self) -> None:
        """Write the report."""
        from gpf.tasks.report import write_report

        print(f"written: {write_report(self.run)}")


@dataclass
class Compile:
    """Compile everything now, once on this machine, so that later commands start at once."""

    def __call__(self) -> None:
        """Run every learner and every policy for a moment."""
        from gpf.navigation.evaluate import evaluate
        from gpf.navigation.policies import POLICIES, make_policy
        from gpf.plume.scenario import Scenario
        from gpf.tasks.plume import TASK

        scenario = Scenario(max_steps=2)
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


@dataclass
class ShowScenario:
    """Print a scenario as JSON, to read or to start one of your own from."""

    scenario: tyro.conf.Positional[str] = "reference"
    """A preset (paper, reference) or a path to a scenario's .json file."""

    def __call__(self) -> None:
        """Print the scenario."""
        from gpf.plume.scenario import Scenario

        print(Scenario.of(self.scenario).to_json())


def _check_writable(path: Path) -> None:
    """Refuse a file that could not be written, before the work whose result it is to hold."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise ValueError(f"cannot write {str(path)!r}; accepted: a file in a folder that can be written to")


def _print_summary(summary: dict[str, Any]) -> None:
    """An evaluation as a table."""
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    def number(key: str, form: str = ".0f") -> str:
        value = summary[key]
        return "-" if value is None else format(value, form)

    title = escape(f"{summary['policy']} on {summary['scenario']}")
    table = Table(box=box.SIMPLE, show_header=False, title=title)
    quantiles = " / ".join(number(f"arrival_q{q}") for q in (5, 25, 50, 75, 95))
    for label, value in [
        ("success", f"{number('success', '.2%')}  [{number('low', '.2%')}, {number('high', '.2%')}], 95 % Wilson"),
        ("never arrived", number("never", ".2%")),
        ("mean steps to the source", number("mean_steps", ".1f")),
        ("5 / 25 / 50 / 75 / 95 % arrived by", f"{quantiles} steps"),
        ("SPL", number("spl", ".3f")),
        ("episodes", number("episodes", ",d")),
        ("speed", f"{number('steps_per_second', ',.0f')} steps/s"),
    ]:
        table.add_row(label, value)
    Console().print(table)


@dataclass
class Sample:
    """Let a language model that gpf train shakespeare made continue a text."""

    run: tyro.conf.Positional[Path]
    """Folder of the run."""
    prompt: str = "\n"
    """What it starts from."""
    tokens: int = 100
    """How many to add."""
    temperature: float = 0.8
    """1 for the model's own distributions; below, the likely becomes more likely; 0 for the likeliest."""
    seed: int = 0
    """Of the random numbers."""

    def __call__(self) -> None:
        """Print the text."""
        from gpf.tasks.shakespeare import sample

        print(sample(self.run, self.prompt, self.tokens, self.temperature, self.seed))
