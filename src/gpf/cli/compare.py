"""Commands that train many runs and write a page: compare, sweep, reproduce, continual, ablate; and page."""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from gpf.cli.names import check_scenarios
from gpf.cli.options import Positional
from gpf.cli.shared import Where, changed, check_folder, show_markdown, typed_command
from gpf.settings import unknown
from gpf.tasks import REGISTRY, find_task, is_task

if TYPE_CHECKING:
    from gpf.studies.engine import Study

# Heavy imports are inside the commands, which lets --help and mistakes answer at once.


@dataclass
class Compare:
    """Train and evaluate agents, or the variants of tasks, over many seeds, and write a page; run again to resume.

    gpf compare trains the navigators that the options below name, gpf compare FILE.toml those of a file, and
    gpf compare TASK ... the variants of tasks: federated, federated-faults, cifar10, mspacman, mspacman-longer,
    shakespeare, characters, permuted-mnist, regression.
    """

    what: Positional[tuple[str, ...]] = ()
    """A file of agents to compare (.toml), or names of tasks. Default: the navigators that the options below name."""
    learners: tuple[str, ...] = ("policy-gradient",)
    """Which learners: policy-gradient, recurrent, parallel, online."""
    networks: tuple[str, ...] = ("gpf", "1")
    """Networks of each learner: gpf (grows, prunes and freezes), or a fixed number of hidden layers."""
    baselines: tuple[str, ...] = ("cast-and-surge",)
    """Baselines to compare with: random, reactive, cast-and-surge."""
    scenarios: tuple[str, ...] = ("reference",)
    """Where: presets ({presets}) or paths to .json files."""
    seeds: int | None = None
    """How many seeds; verdicts need at least six, and more where a page has many tests. Default: as the file or the
    task says, otherwise 10."""
    first_seed: int | None = None
    """The first seed. Default: as the file says, otherwise 0."""
    episodes: int | None = None
    """Held-out episodes of each seed. Default: as the file says, otherwise 1000."""
    runs: Path | None = None
    """Folder of the runs, which comparisons can share. Default: runs/compare, or runs/tasks for tasks."""
    page: Path | None = None
    """Folder of the page, its figures and its numbers. Default: the folder of the runs."""
    where: Where = dataclasses.field(default_factory=Where)
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
        check_scenarios(self.scenarios)
        from gpf.reports.pages import read_numbers
        from gpf.reports.verdicts import corrected
        from gpf.studies.navigators import Comparison, chosen_agents, compare_navigators, read_comparison, table

        given = {name: getattr(self, name) for name in ("seeds", "first_seed", "episodes")}
        given = {name: value for name, value in given.items() if value is not None}
        if file is not None:
            comparison = read_comparison(file, given)
        else:
            agents = chosen_agents(self.learners, self.networks, self.baselines)
            comparison = Comparison(agents=agents, scenarios=self.scenarios, **given)
        runs, study, name = self.runs or Path("runs/compare"), comparison.study(), file.stem if file else "comparison"
        page, executor = self.page or runs, self.where.executor()
        check_folder(page, "--page")
        with _progress(runs, study) as tell:
            path = compare_navigators(comparison, runs, page, name, typed_command(), executor, tell)
        numbers = read_numbers(path.with_suffix(".json"))
        if self.json:
            print(json.dumps({"runs": str(runs), "page": str(path), "rows": numbers["rows"]}))
        else:
            show_markdown(corrected(lambda family: table(numbers["rows"], family)))
            print(f"written: {path}, {path.with_suffix('.png')}, {path.with_suffix('.json')}")

    def _tasks(self) -> None:
        for name in self.what:
            if not is_task(name):
                raise ValueError(f"{unknown('task', name, REGISTRY)} (or a .toml file of agents)")
        from gpf.studies.variants import compare_variants, variants_study, write_summary

        if self.episodes is not None:
            raise ValueError("--episodes is for navigators, not for other tasks")
        first, runs = self.first_seed or 0, self.runs or Path("runs/tasks")
        page, written = self.page or runs, []
        studies = {}
        for name in self.what:
            task = find_task(name)
            studies[name] = variants_study(task, _seeds(task.seeds if self.seeds is None else self.seeds, first))
        check_folder(page, "--page")
        for study in studies.values():
            with _progress(runs, study) as tell:
                command, executor = typed_command(), self.where.executor()
                written.append(compare_variants(study.task, study, runs, page, command, executor, tell))
            if not self.json:
                show_markdown(written[-1].read_text())
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
    """Which claims to test: about the training curve (experiment, always included, because the others are compared with
    it), pruned weights (sparsity), time (budget), deep or wide networks (width)."""
    scenario: str = "reference"
    """Where: a preset (paper; reference, the world of the authors' code) or a path to a scenario's .json file."""
    seeds: int = 10
    """How many seeds."""
    first_seed: int = 0
    """The first seed."""
    runs: Path = Path("runs/reproduce")
    """Folder of the runs."""
    page: Path | None = None
    """Folder of the page, its figures and its numbers. Default: the folder of the runs."""
    where: Where = dataclasses.field(default_factory=Where)
    json: bool = False
    """Print one JSON object on the last line in place of the page."""

    def __call__(self) -> None:
        """Train what is missing, and write the page."""
        check_scenarios([self.scenario])
        from gpf.reports.pages import read_numbers
        from gpf.studies.reproduction import reproduce, reproduction_study

        executor, seeds, page = self.where.executor(), _seeds(self.seeds, self.first_seed), self.page or self.runs
        study = reproduction_study(self.runs, seeds, self.parts, self.scenario)
        check_folder(page, "--page")
        with _progress(self.runs, study) as tell:
            path = reproduce(study, self.runs, self.parts, self.scenario, page, typed_command(), executor, tell)
        if self.json:
            numbers = read_numbers(path.with_suffix(".json"))
            print(json.dumps({"page": str(path), "seconds": numbers["seconds"], "seeds": numbers["seeds"]}))
        else:
            _show(path)


@dataclass
class Pays:
    """Show where growing, pruning and freezing pay: fixed networks of every depth at equal steps and equal FLOPs,
    against GPF, on several tasks; run again to resume.

    Latencies are measured when everything is trained; leave the machine alone then.
    """

    subjects: tuple[Literal["characters", "tokens", "images-residual", "images-mlp", "navigation"], ...] = (
        "characters", "tokens", "images-residual", "images-mlp", "navigation",
    )  # fmt: skip
    """Task to learn."""
    seeds: int | None = None
    """How many seeds. Default: 6; 10 for navigation."""
    runs: Path = Path("runs/pays")
    """Folder of the runs."""
    page: Path | None = None
    """Folder of the page, its figures and its numbers. Default: the folder of the runs."""
    where: Where = dataclasses.field(default_factory=Where)

    def __call__(self) -> None:
        """Train what is missing, measure latencies, and write the page."""
        from gpf.studies.pays import pays_study, write_pays
        from gpf.studies.subjects import SUBJECTS

        page, executor = self.page or self.runs, self.where.executor()
        check_folder(page, "--page")
        found: dict[str, dict[str, list[Any]]] = {name: {} for name in self.subjects}
        for name, outcomes in found.items():
            for variants in SUBJECTS[name].variants:
                study = pays_study(SUBJECTS[name], self.seeds, variants(outcomes))
                with _progress(self.runs, study) as tell:
                    trained = study.train(self.runs, executor, tell)
                outcomes |= {variant: some for (_, variant), some in trained.items()}
        _show(write_pays(found, page, typed_command()))


@dataclass
class Continual:
    """Compare methods of continual learning in worlds that change without notice; run again to resume."""

    streams: tuple[str, ...] = ("harsh", "returning")
    """Streams of worlds: presets (gentle, harsh, returning), or paths to .json files of visits."""
    methods: tuple[str, ...] = (
        "gpf", "depth-1", "depth-2", "depth-4", "budget", "continual-backprop", "l2-init", "shrink-and-perturb", "ewc",
        "replay", "reset-on-drop", "reset", "one-each",
    )  # fmt: skip
    """Methods to compare: any of the default ones, gpf-no-grow, gpf-no-prune, gpf-no-freeze, gpf-no-soften. They must
    include reset, a fresh learner in every visit, with which the others are compared."""
    learners: tuple[Literal["policy-gradient", "parallel"], ...] = ("policy-gradient", "parallel")
    """Learners of the methods: policy-gradient (PPO), parallel (Expected SARSA)."""
    seeds: int = 10
    """How many seeds."""
    first_seed: int = 0
    """The first seed."""
    episodes: int = 1000
    """Episodes of each visit to a world, in a preset."""
    visits: int | None = None
    """Number of visits, in a preset. Default: 14 in harsh, 13 in the others."""
    orders: tuple[int, ...] = (0, 1)
    """Seeds of the orders of the worlds, in a preset; each is run with every seed."""
    runs: Path = Path("runs/continual")
    """Folder of the runs."""
    page: Path | None = None
    """Folder of the page, its figures and its numbers. Default: the folder of the runs."""
    name: str = "shifting-worlds"
    """Name of the page."""
    where: Where = dataclasses.field(default_factory=Where)
    json: bool = False
    """Print one JSON object on the last line in place of the page."""

    def __call__(self) -> None:
        """Train what is missing, and write the page."""
        from gpf.reports.pages import read_numbers
        from gpf.studies.shifting import Plan, compare_methods

        plan = Plan(**{spec.name: getattr(self, spec.name) for spec in dataclasses.fields(Plan)})
        page, executor, study = self.page or self.runs, self.where.executor(), plan.study()
        check_folder(page, "--page")
        with _progress(self.runs, study) as tell:
            path = compare_methods(plan, self.runs, page, self.name, typed_command(), executor, tell)
        if self.json:
            print(json.dumps({"page": str(path), "rows": read_numbers(path.with_suffix(".json"))["rows"]}))
        else:
            _show(path)


@dataclass
class Ablate:
    """Train navigators without one group of memory features after the other, and compare; run again to resume."""

    steps: int = 3_000_000
    """Environment steps of each run."""
    seeds: int = 10
    """How many seeds; with fewer no single one of the page's 22 tests can count after correction."""
    first_seed: int = 200
    """The first seed."""
    runs: Path = Path("runs/ablations")
    """Folder of the runs."""
    page: Path | None = None
    """Folder of the page and its numbers. Default: the folder of the runs."""
    name: str = "memory-features"
    """Name of the page."""
    where: Where = dataclasses.field(default_factory=Where)
    json: bool = False
    """Print one JSON object on the last line in place of the page."""

    def __call__(self) -> None:
        """Train what is missing, and write the page."""
        from gpf.reports.pages import read_numbers
        from gpf.studies.ablations import ablate, ablations_study

        study = ablations_study(_seeds(self.seeds, self.first_seed), self.steps)
        page, executor = self.page or self.runs, self.where.executor()
        check_folder(page, "--page")
        with _progress(self.runs, study) as tell:
            path = ablate(study, self.runs, page, self.name, typed_command(), executor, tell)
        if self.json:
            print(json.dumps({"page": str(path), "scores": read_numbers(path.with_suffix(".json"))["scores"]}))
        else:
            _show(path)


@dataclass
class Sweep:
    """Search for good settings of a task: draw variants, train them over seeds, keep the best; run again to resume."""

    file: Positional[Path]
    """The search: task, measure, and settings with their ranges (.toml); docs/architecture.md has an example."""
    runs: Path | None = None
    """Folder of the runs and of the search's state. Default: runs/sweep/FILE."""
    page: Path | None = None
    """Folder of the page, its figure and its numbers. Default: the folder of the runs."""
    where: Where = dataclasses.field(default_factory=Where)
    json: bool = False
    """Print one JSON object on the last line in place of the page."""

    def __call__(self) -> None:
        """Search, and write the page."""
        from gpf.reports.pages import read_numbers
        from gpf.runs.progress import runs_progress
        from gpf.studies.sweep import read_search, sweep

        search, runs = read_search(self.file), self.runs or Path("runs/sweep", self.file.stem)
        page, executor = self.page or runs, self.where.executor()
        check_folder(page, "--page")
        with runs_progress(str(runs), search.trials * search.seeds) as tell:
            path = sweep(search, runs, page, self.file.stem, typed_command(), executor, tell)
        if self.json:
            print(json.dumps({"page": str(path), **read_numbers(path.with_suffix(".json"))}))
        else:
            _show(path)


@dataclass
class Page:
    """Write result pages again from their numbers, without training anything; figures do not change."""

    numbers: Positional[tuple[Path, ...]]
    """Numbers that gpf compare and other commands wrote (.json); each page is written next to them."""

    def __call__(self) -> None:
        """Write the pages."""
        from gpf.reports.pages import read_numbers
        from gpf.runs.folder import replace_text
        from gpf.studies import page_of

        for path in self.numbers:
            replace_text(path.with_suffix(".md"), page_of(read_numbers(path), path.stem))
            print(f"written: {path.with_suffix('.md')}")


def _seeds(count: int, first: int) -> range:
    from gpf.studies.engine import check_seeds

    check_seeds(count, first)
    return range(first, first + count)


def _progress(runs: Path, study: "Study") -> Any:
    from gpf.runs.progress import runs_progress

    return runs_progress(str(runs), study.runs, study.task.describe, study.task.describe_result)


def _show(path: Path) -> None:
    show_markdown(path.read_text())
    print(f"written: {path}")
