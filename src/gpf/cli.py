"""Grow-prune-freeze networks and the odour-plume world."""

import dataclasses
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import tyro

from gpf.cli_tasks import TASKS, Sample, run_task
from gpf.cli_world import World, typed_command
from gpf.navigation.config import Config

# Heavy imports stand inside the commands, so that `gpf --help` answers at once.


@dataclass
class Train:
    """Train a navigator that finds the source of a smell; everything about it goes into one folder.

    The paper's other tasks: gpf train cifar10, mspacman, mspacman-longer, shakespeare, permuted-mnist or regression,
    each with --help of its own.
    """

    config: tyro.conf.OmitArgPrefixes[Config] = dataclasses.field(default_factory=Config)
    run: Path | None = None
    """Folder of the run, which must be new; None for runs/plume-1, runs/plume-2 and so on."""
    resume: Path | None = None
    """Go on with the run in this folder, which was interrupted or killed; it ends as if it had not been."""
    threads: int | None = None
    """Threads to step worlds with; None for one per core. The result is the same."""
    tensorboard: bool = False
    """Also write the metrics for TensorBoard, to the run's folder."""
    json: bool = False
    """Print one JSON object on the last line in place of the table."""

    def __call__(self) -> None:
        """Train, evaluate, and print the result."""
        from gpf.navigation.agents import read_run_config
        from gpf.runs.folder import Run, next_folder
        from gpf.runs.progress import training_progress
        from gpf.tasks.plume import check_threads, create_run, train
        from gpf.tasks.report import write_report

        check_threads(self.threads)
        if self.resume is not None:
            if self.run is not None or self.config != Config():
                raise ValueError(
                    "resume: given beside settings of a new run; accepted: alone, for they are in its folder"
                )
            run = Run.open(self.resume)
        else:
            run = create_run(self.run or next_folder(Path("runs"), "plume"), self.config)
        epochs = read_run_config(run.folder)[0].epochs
        with training_progress(run.folder, epochs, self.tensorboard) as report:
            result = train(run, self.threads, report)
        result["report"] = str(write_report(run.folder))
        if self.json:
            print(json.dumps(result))
        else:
            _print_result(result)


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
        from gpf.navigation.evaluate import BLOCK, HELD_OUT, evaluate, film
        from gpf.navigation.figures import evaluation_figure
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
class Compare:
    """Train and evaluate a set of agents over many seeds, to one table and one figure; run again to go on."""

    file: tyro.conf.Positional[Path | None] = None
    """A comparison (.toml), in place of --learners, --networks, --baselines and --scenarios."""
    learners: tuple[str, ...] = ("policy-gradient",)
    """Which learners: policy-gradient, parallel, online."""
    networks: tuple[str, ...] = ("gpf", "1")
    """Each learner with each of these: gpf, or a fixed number of layers."""
    baselines: tuple[str, ...] = ("cast-and-surge",)
    """Beside them: random, reactive, cast-and-surge."""
    scenarios: tuple[str, ...] = ("reference",)
    """Where: presets (paper, reference) or paths to .json files."""
    seeds: int | None = None
    """How many seeds; None for the file's, or 5."""
    first_seed: int | None = None
    """The first of them; None for the file's, or 0."""
    episodes: int | None = None
    """Held-out episodes of each seed; None for the file's, or 1000."""
    runs: Path = Path("runs/compare")
    """Folder of the runs; comparisons that share it share runs of agents of the same name."""
    page: Path | None = None
    """Folder of the page, its figure and its numbers; None for the folder of the runs."""
    jobs: int = 2
    """Runs at the same time, each on one core."""
    json: bool = False
    """Print one JSON object on the last line in place of the table."""

    def __call__(self) -> None:
        """Compare, and print the table."""
        from gpf.runs.progress import runs_progress
        from gpf.tasks.compare import (
            Comparison,
            chosen_agents,
            compare,
            read_comparison,
            table,
            write_page,
        )

        given = {name: getattr(self, name) for name in ("seeds", "first_seed", "episodes")}
        given = {name: value for name, value in given.items() if value is not None}
        if self.file is not None:
            flags = ("learners", "networks", "baselines", "scenarios")
            if beside := [name for name in flags if getattr(self, name) != getattr(Compare, name)]:
                raise ValueError(f"{beside[0]}: given beside {self.file}; accepted: one of the two")
            comparison = dataclasses.replace(read_comparison(self.file), **given)
        else:
            agents = chosen_agents(self.learners, self.networks, self.baselines)
            comparison = Comparison(agents, self.scenarios, **{"seeds": 5, **given})
        trained = [agent for agent in comparison.agents if agent.config is not None]
        total = len(trained) * len(comparison.scenarios) * comparison.seeds
        with runs_progress(str(self.runs), total) as tell:
            rows = compare(comparison, self.runs, self.jobs, tell)
        name = "comparison" if self.file is None else self.file.stem
        path = write_page(comparison, self.runs, rows, self.page or self.runs, name, typed_command())
        if self.json:
            print(json.dumps({"runs": str(self.runs), "page": str(path), "rows": rows}))
        else:
            print(table(rows))
            print(f"written: {path}, {path.with_suffix('.png')}, {path.with_suffix('.json')}")


@dataclass
class Reproduce:
    """Repeat the paper's experiment over many seeds, and hold its claims against the intervals; run again to go on."""

    parts: tuple[Literal["experiment", "sparsity", "budget", "width"], ...] = ("experiment",)
    """Which claims to look at: those about the training curve (`experiment`, always among them, for the others are held
    against it), pruned weights (`sparsity`), time (`budget`), and deep or wide networks (`width`)."""
    scenario: str = "reference"
    """Where: reference, the world of the authors' code, or another preset (paper), or a path to a .json file."""
    seeds: int = 10
    """How many seeds."""
    first_seed: int = 0
    """The first of them."""
    runs: Path = Path("runs/reproduce")
    """Folder of the runs."""
    page: Path | None = None
    """Folder of the page, its figures and its numbers; None for the folder of the runs."""
    jobs: int = 2
    """Runs at the same time, each on one core."""
    json: bool = False
    """Print one JSON object on the last line in place of the page."""

    def __call__(self) -> None:
        """Train what is missing, and write the page."""
        from gpf.runs.progress import runs_progress
        from gpf.tasks.reproduce import chosen_agents, reproduce, write_page

        for name, least in (("seeds", 1), ("first_seed", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name}: {getattr(self, name)}; accepted: at least {least}")
        seeds = range(self.first_seed, self.first_seed + self.seeds)
        total = len(seeds) * len(chosen_agents(self.runs, self.parts))
        with runs_progress(str(self.runs), total) as tell:
            scores = reproduce(self.runs, seeds, self.parts, self.jobs, tell, self.scenario)
        path = write_page(scores, self.page or self.runs, typed_command())
        if self.json:
            print(json.dumps({"page": str(path), "seconds": scores["seconds"], "seeds": list(seeds)}))
        else:
            print(path.read_text())
            print(f"written: {path}")


@dataclass
class Continual:
    """Let methods of continual learning live through worlds that change without notice; run again to go on."""

    streams: tuple[str, ...] = ("harsh", "returning")
    """Presets (gentle, harsh, returning), or paths to .json files of visits."""
    methods: tuple[str, ...] = (
        "gpf", "depth-1", "depth-4", "continual-backprop", "l2-init", "shrink-and-perturb", "ewc", "reset", "one-each",
    )  # fmt: skip
    """Who lives there: any of these, or gpf-no-grow, gpf-no-prune, gpf-no-freeze; reset, a fresh learner in every
    visit, is what the others are held against."""
    learners: tuple[Literal["policy-gradient", "parallel"], ...] = ("policy-gradient", "parallel")
    """How they learn: policy-gradient (PPO), parallel (Expected SARSA)."""
    seeds: int = 10
    """How many seeds."""
    first_seed: int = 0
    """The first of them."""
    episodes: int = 1000
    """Of each visit, in a preset."""
    visits: int | None = None
    """How many, in a preset; None for 14 in harsh, 13 in the others."""
    order: int = 0
    """Of the regimes in a preset: the seed that it is drawn with."""
    runs: Path = Path("runs/continual")
    """Folder of the runs."""
    page: Path | None = None
    """Folder of the page, its figures and its numbers; None for the folder of the runs."""
    name: str = "shifting-worlds"
    """Of the page."""
    jobs: int = 2
    """Runs at the same time, each on one core."""
    json: bool = False
    """Print one JSON object on the last line in place of the page."""

    def __call__(self) -> None:
        """Train what is missing, and write the page."""
        from gpf.runs.progress import runs_progress
        from gpf.tasks.streams import Study, study, write_page

        plan = Study(
            self.streams,
            self.learners,
            self.methods,
            self.seeds,
            self.first_seed,
            self.episodes,
            self.visits,
            self.order,
        )
        total = len(plan.streams) * len(plan.learners) * len(plan.methods) * plan.seeds
        with runs_progress(str(self.runs), total) as tell:
            rows = study(plan, self.runs, self.jobs, tell)
        path = write_page(plan, self.runs, rows, self.page or self.runs, self.name, typed_command())
        if self.json:
            print(json.dumps({"page": str(path), "rows": rows}))
        else:
            print(path.read_text())
            print(f"written: {path}")


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
    """Folder of a run that gpf train or gpf world train made; it need not be finished."""

    def __call__(self) -> None:
        """Write the report."""
        from gpf.runs.folder import read_config
        from gpf.tasks import report, variants, world_pages

        task = read_config(self.run).get("task")
        kind: Any = {"world": world_pages, "plume": report}.get(str(task), variants)
        print(f"written: {kind.write_report(self.run)}")


@dataclass
class Compile:
    """Compile everything now, once on this machine, so that later commands start at once."""

    def __call__(self) -> None:
        """Run every learner and every policy for a moment."""
        import tempfile

        from gpf.navigation.evaluate import evaluate
        from gpf.navigation.policies import POLICIES, make_policy
        from gpf.plume.scenario import Scenario
        from gpf.tasks.plume import Training, create_run

        scenario = Scenario(max_steps=2)
        for name in POLICIES:
            evaluate(make_policy(name), scenario, 1)
        few: dict[str, Any] = {"steps": 1, "lanes": 2, "horizon": 2, "minibatch": 4}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "scenario.json")
            path.write_text(scenario.to_json())
            configs = (
                Config(scenario=str(path), **few),
                Config(scenario=str(path), observation="onehot", **few),
                Config(scenario=str(path), learner="parallel", **few),
                Config(scenario=str(path), learner="online", episodes=1),
            )
            for n, config in enumerate(configs):
                Training(create_run(Path(folder, f"{n}"), config), threads=1).round()


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


def _print_result(result: dict[str, Any]) -> None:
    """A trained navigator as a table: the last checkpoint, which we stand behind, and the best one."""
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=box.SIMPLE, title=escape(f"{result['run']}: {result['episodes']:,} held-out episodes"))
    for column in ("checkpoint", "acting", "success [95 %]", "mean steps", "SPL"):
        table.add_column(column)
    for checkpoint, by_acting in result["checkpoints"].items():
        for acting, s in by_acting.items():
            chosen = checkpoint == "last" and acting == result["acting"]
            success = f"{s['success']:.2%} [{s['low']:.2%}, {s['high']:.2%}]"
            steps = "-" if s["mean_steps"] is None else f"{s['mean_steps']:.1f}"
            table.add_row(checkpoint, acting, success, steps, f"{s['spl']:.3f}", style="bold" if chosen else None)
    console = Console()
    console.print(table)
    frozen = ", ".join(map(str, result["frozen"])) or "none"
    console.print(
        f"depth {result['depth']}, density {result['density']:.3f}, {result['parameters']:,} parameters in the stack,"
        f" frozen layers: {frozen}; {result['steps']:,} steps in {result['seconds']:.1f} s",
        highlight=False,
    )
    figures = Path(result["run"], "figures")
    print(f"figures: {figures / 'training.png'}, {figures / 'trajectories.png'}\nreport: {result['report']}")


def main() -> None:
    """Run the command that the arguments name; a user's mistake ends in one line and exit code 2."""
    try:
        _command()()
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read our output has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (ValueError, RuntimeError, ArithmeticError, OSError) as error:
        print(f"gpf: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt as interruption:
        print(f"gpf: interrupted{f'; {interruption}' if str(interruption) else ''}", file=sys.stderr)
        sys.exit(130)


def _command() -> Callable[[], None]:
    """What the arguments ask for; `train` and `compare` are of navigators unless another task is named."""
    match sys.argv[1:]:
        case [("train" | "compare") as what, task, *arguments] if task in TASKS:
            return lambda: run_task(what, task, arguments)
    command: Callable[[], None] = tyro.extras.subcommand_cli_from_dict(
        {
            "train": Train,
            "evaluate": Evaluate,
            "compare": Compare,
            "reproduce": Reproduce,
            "continual": Continual,
            "report": Report,
            "spectra": Spectra,
            "sample": Sample,
            "world": World,
            "scenario": ShowScenario,
            "compile": Compile,
        },
        prog="gpf",
        description=__doc__,
    )
    return command
