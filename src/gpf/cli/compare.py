"""Commands that train many runs and write a page of them: compare, sweep, reproduce, continual, ablate; and page."""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import tyro

from gpf.cli.shared import Where, changed, typed_command
from gpf.reports.pages import read_numbers
from gpf.runs.folder import replace_text
from gpf.runs.progress import runs_progress
from gpf.studies import page_of
from gpf.studies.engine import Study, check_seeds
from gpf.tasks import find_task, is_task


@dataclass
class Compare:
    """Train and evaluate a set of agents, or the variants of tasks, over many seeds, to one page; run again to resume.

    gpf compare compares navigators by the flags below, gpf compare FILE.toml those of a file, gpf compare TASK ... the
    variants of tasks: cifar10, mspacman, mspacman-longer, shakespeare, permuted-mnist, regression.
    """

    what: tyro.conf.Positional[tuple[str, ...]] = ()
    """A comparison of navigators (.toml), or names of tasks; nothing for the flags below."""
    learners: tuple[str, ...] = ("policy-gradient",)
    """Which learners: policy-gradient, parallel, online."""
    networks: tuple[str, ...] = ("gpf", "1")
    """Each learner with each of these: gpf, or a fixed number of layers."""
    baselines: tuple[str, ...] = ("cast-and-surge",)
    """Beside them: random, reactive, cast-and-surge."""
    scenarios: tuple[str, ...] = ("reference",)
    """Where: presets (paper, reference) or paths to .json files."""
    seeds: int | None = None
    """How many seeds; None for the file's, or the task's, or 5."""
    first_seed: int | None = None
    """The first of them; None for the file's, or 0."""
    episodes: int | None = None
    """Held-out episodes of each seed; None for the file's, or 1000."""
    runs: Path | None = None
    """Folder of the runs, which comparisons can share; None for runs/compare, or runs/tasks."""
    page: Path | None = None
    """Folder of the page, its figures and its numbers; None for the folder of the runs."""
    where: tyro.conf.OmitArgPrefixes[Where] = dataclasses.field(default_factory=Where)
    json: bool = False
    """Print one JSON object on the last line in place of the table."""

    def __call__(self) -> None:
        """Compare, and print the tables."""
        flags = ("learners", "networks", "baselines", "scenarios")
        if self.what and (given := changed(self, *flags)):
            raise ValueError(f"--{given[0]} cannot be combined with {self.what[0]}")
        if len(self.what) == 1 and not is_task(self.what[0]) and Path(self.what[0]).suffix:
            self._navigators(Path(self.what[0]))
        elif self.what:
            self._tasks()
        else:
            self._navigators(None)

    def _navigators(self, file: Path | None) -> None:
        from gpf.studies.navigators import Comparison, chosen_agents, compare_navigators, read_comparison, table

        given = {name: getattr(self, name) for name in ("seeds", "first_seed", "episodes")}
        given = {name: value for name, value in given.items() if value is not None}
        if file is not None:
            comparison = read_comparison(file, given)
        else:
            agents = chosen_agents(self.learners, self.networks, self.baselines)
            comparison = Comparison(agents=agents, scenarios=self.scenarios, **{"seeds": 5, **given})
        runs, study, name = self.runs or Path("runs/compare"), comparison.study(), file.stem if file else "comparison"
        with _progress(runs, study) as tell:
            path = compare_navigators(
                comparison, runs, self.page or runs, name, typed_command(), self.where.executor(), tell
            )
        numbers = read_numbers(path.with_suffix(".json"))
        if self.json:
            print(json.dumps({"runs": str(runs), "page": str(path), "rows": numbers["rows"]}))
        else:
            print(table(numbers["rows"]))
            print(f"written: {path}, {path.with_suffix('.png')}, {path.with_suffix('.json')}")

    def _tasks(self) -> None:
        from gpf.studies.variants import compare_variants, variants_study, write_summary

        if self.episodes is not None:
            raise ValueError("--episodes is for navigators, not for other tasks")
        first, runs = self.first_seed or 0, self.runs or Path("runs/tasks")
        page, written = self.page or runs, []
        studies = {}
        for name in self.what:
            task = find_task(name)
            studies[name] = variants_study(task, _seeds(task.seeds if self.seeds is None else self.seeds, first))
        for study in studies.values():
            with _progress(runs, study) as tell:
                command, executor = typed_command(), self.where.executor()
                written.append(compare_variants(study.task, study, runs, page, command, executor, tell))
            if not self.json:
                print(written[-1].read_text())
        if (summary := write_summary(page)) is not None:
            written.append(summary)
        if self.json:
            print(json.dumps({"runs": str(runs), "pages": [str(path) for path in written]}))
        else:
            print(f"written: {', '.join(map(str, written))}")


@dataclass
class Reproduce:
    """Repeat the paper's experiment over many seeds, and judge its claims by the intervals; run again to resume."""

    parts: tuple[Literal["experiment", "sparsity", "budget", "width"], ...] = ("experiment",)
    """Which claims to look at: those about the training curve (`experiment`, always among them, for the others are
    compared with it), pruned weights (`sparsity`), time (`budget`), and deep or wide networks (`width`)."""
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
    where: tyro.conf.OmitArgPrefixes[Where] = dataclasses.field(default_factory=Where)
    json: bool = False
    """Print one JSON object on the last line in place of the page."""

    def __call__(self) -> None:
        """Train what is missing, and write the page."""
        from gpf.studies.reproduction import reproduce, reproduction_study

        executor, seeds = self.where.executor(), _seeds(self.seeds, self.first_seed)
        study = reproduction_study(self.runs, seeds, self.parts, self.scenario)
        with _progress(self.runs, study) as tell:
            path = reproduce(
                study, self.runs, self.parts, self.scenario, self.page or self.runs, typed_command(), executor, tell
            )
        if self.json:
            numbers = read_numbers(path.with_suffix(".json"))
            print(json.dumps({"page": str(path), "seconds": numbers["seconds"], "seeds": numbers["seeds"]}))
        else:
            _show(path)


@dataclass
class Continual:
    """Compare methods of continual learning in worlds that change without notice; run again to resume."""

    streams: tuple[str, ...] = ("harsh", "returning")
    """Presets (gentle, harsh, returning), or paths to .json files of visits."""
    methods: tuple[str, ...] = (
        "gpf", "depth-1", "depth-4", "continual-backprop", "l2-init", "shrink-and-perturb", "ewc", "reset", "one-each",
    )  # fmt: skip
    """Who lives there: any of these, or gpf-no-grow, gpf-no-prune, gpf-no-freeze; reset, a fresh learner in every
    visit, is what the others are compared with."""
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
    where: tyro.conf.OmitArgPrefixes[Where] = dataclasses.field(default_factory=Where)
    json: bool = False
    """Print one JSON object on the last line in place of the page."""

    def __call__(self) -> None:
        """Train what is missing, and write the page."""
        from gpf.studies.shifting import Plan, compare_methods

        plan = Plan(**{spec.name: getattr(self, spec.name) for spec in dataclasses.fields(Plan)})
        with _progress(self.runs, plan.study()) as tell:
            page, executor = self.page or self.runs, self.where.executor()
            path = compare_methods(plan, self.runs, page, self.name, typed_command(), executor, tell)
        if self.json:
            print(json.dumps({"page": str(path), "rows": read_numbers(path.with_suffix(".json"))["rows"]}))
        else:
            _show(path)


@dataclass
class Ablate:
    """Train navigators without one group of memory features after the other, and compare; run again to resume."""

    steps: int = 3_000_000
    """Steps to learn from, of each run."""
    seeds: int = 6
    """How many seeds; with fewer than six, differences have no verdict."""
    first_seed: int = 200
    """The first of them."""
    runs: Path = Path("runs/ablations")
    """Folder of the runs."""
    page: Path | None = None
    """Folder of the page and its numbers; None for the folder of the runs."""
    name: str = "memory-features"
    """Of the page."""
    where: tyro.conf.OmitArgPrefixes[Where] = dataclasses.field(default_factory=Where)
    json: bool = False
    """Print one JSON object on the last line in place of the page."""

    def __call__(self) -> None:
        """Train what is missing, and write the page."""
        from gpf.studies.ablations import ablate, ablations_study

        study = ablations_study(_seeds(self.seeds, self.first_seed), self.steps)
        with _progress(self.runs, study) as tell:
            page, executor = self.page or self.runs, self.where.executor()
            path = ablate(study, self.runs, page, self.name, typed_command(), executor, tell)
        if self.json:
            print(json.dumps({"page": str(path), "scores": read_numbers(path.with_suffix(".json"))["scores"]}))
        else:
            _show(path)


@dataclass
class Sweep:
    """Search for good settings of a task: draw variants, train them over seeds, keep the best; run again to resume."""

    file: tyro.conf.Positional[Path]
    """What is searched, and how (.toml); docs/architecture.md has an example."""
    runs: Path | None = None
    """Folder of the runs and of the search's state; None for runs/sweep/FILE."""
    page: Path | None = None
    """Folder of the page, its figure and its numbers; None for the folder of the runs."""
    where: tyro.conf.OmitArgPrefixes[Where] = dataclasses.field(default_factory=Where)
    json: bool = False
    """Print one JSON object on the last line in place of the page."""

    def __call__(self) -> None:
        """Search, and write the page."""
        from gpf.studies.sweep import read_search, sweep

        search, runs = read_search(self.file), self.runs or Path("runs/sweep", self.file.stem)
        with runs_progress(str(runs), search.trials * search.seeds) as tell:
            page, executor = self.page or runs, self.where.executor()
            path = sweep(search, runs, page, self.file.stem, typed_command(), executor, tell)
        if self.json:
            print(json.dumps({"page": str(path), **read_numbers(path.with_suffix(".json"))}))
        else:
            _show(path)


@dataclass
class Page:
    """Write result pages again from their numbers, without training anything; figures stay as they are."""

    numbers: tyro.conf.Positional[tuple[Path, ...]]
    """Numbers that gpf compare and other commands wrote (.json); each page lies beside them."""

    def __call__(self) -> None:
        """Write the pages."""
        for path in self.numbers:
            replace_text(path.with_suffix(".md"), page_of(read_numbers(path), path.stem))
            print(f"written: {path.with_suffix('.md')}")


def _seeds(count: int, first: int) -> range:
    check_seeds(count, first)
    return range(first, first + count)


def _progress(runs: Path, study: Study) -> Any:
    return runs_progress(str(runs), study.runs, study.task.describe, study.task.describe_result)


def _show(path: Path) -> None:
    print(path.read_text())
    print(f"written: {path}")
