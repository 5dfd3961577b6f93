"""`gpf train TASK`, `gpf compare TASK` and `gpf sample`: the paper's other tasks."""

import dataclasses
import importlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

TASKS = ("cifar10", "mspacman", "mspacman-longer", "shakespeare", "permuted-mnist", "regression")
"""What can be trained and compared beside navigators; `gpf.tasks.studies` says what each is."""


def run_task(command: str, task: str, arguments: list[str]) -> None:
    """Carry out `gpf train TASK` or `gpf compare TASK ...`."""
    if command == "train":
        _train_command(task, arguments)()
    else:
        tyro.cli(CompareTasks, args=[task, *arguments], prog="gpf compare")()


def _train_command(task: str, arguments: list[str]) -> Any:
    """The command that trains on a task, with that task's own settings as options."""
    from gpf.tasks.variants import find_study

    study = find_study(task)
    kind = importlib.import_module(f"gpf.tasks.{study.module}").Config
    default = kind.of(study.settings)

    @dataclass
    class Train:
        config: tyro.conf.OmitArgPrefixes[kind] = dataclasses.field(default_factory=lambda: default)  # type: ignore[valid-type]
        run: Path | None = None
        """Folder of the run, which must be new; None for runs/TASK-1, runs/TASK-2 and so on. With --seeds, of all."""
        resume: Path | None = None
        """Go on with the run in this folder, which was interrupted or killed; it ends as if it had not been."""
        seeds: int | None = None
        """How many runs, of the seeds from --seed on, two at a time; run again to go on. None for one."""
        json: bool = False
        """Print one JSON object on the last line in place of the result."""

        def __call__(self) -> None:
            """Train, write reports, and print the results."""
            _train(task, study.module, self, default)

    Train.__doc__ = f"{study.title}; everything about a run goes into one folder."
    return tyro.cli(Train, args=arguments, prog=f"gpf train {task}")


def _train(task: str, module_name: str, asked: Any, default: Any) -> None:
    from gpf.runs.folder import Run, next_folder
    from gpf.runs.progress import runs_progress, training_progress
    from gpf.tasks.many import train_all
    from gpf.tasks.rounds import find_data_of, read_task_config
    from gpf.tasks.variants import write_report

    module: Any = importlib.import_module(f"gpf.tasks.{module_name}")
    config = asked.config
    if asked.resume is not None and (asked.run is not None or asked.seeds is not None or config != default):
        raise ValueError("resume: given beside settings of a new run; accepted: alone, for they are in its folder")
    if asked.seeds is not None:
        if asked.seeds < 1:
            raise ValueError(f"seeds: {asked.seeds}; accepted: at least 1")
        config.check()
        parent = asked.run or Path("runs", task)
        wanted = {
            parent / str(seed): dataclasses.replace(config, seed=seed)
            for seed in range(config.seed, config.seed + asked.seeds)
        }
        find_data_of(wanted)
        with runs_progress(str(parent), len(wanted), _result_line) as tell:
            results = list(train_all(wanted, 2, tell, task=module_name).values())
        folders = list(wanted)
    else:
        run = Run.open(asked.resume) if asked.resume else None
        run = run or module.create_run(asked.run or next_folder(Path("runs"), task), config)
        settings = read_task_config(run.folder, type(config))
        total, count = settings.length
        with training_progress(run.folder, total, count=count, describe=_round_line) as report:
            results = [module.train(run, report=report)]
        folders = [run.folder]
    for folder, result in zip(folders, results, strict=True):
        result["report"] = str(write_report(folder))
    if asked.json:
        print(json.dumps(results if asked.seeds is not None else results[0]))
        return
    for result in results:
        print(f"{result['run']}: {_result_line(result)}, {result['seconds']:.0f} s\nreport: {result['report']}")


@dataclass
class CompareTasks:
    """Train all variants of one or more tasks over several seeds, and write a page of each; run again to go on."""

    tasks: tyro.conf.Positional[tuple[str, ...]]
    """cifar10, mspacman, mspacman-longer, shakespeare, permuted-mnist, regression."""
    seeds: int | None = None
    """How many seeds; None for the task's own number."""
    first_seed: int = 0
    """The first of them."""
    runs: Path = Path("runs/tasks")
    """Folder of the runs."""
    page: Path | None = None
    """Folder of the pages, their figures and their numbers; None for the folder of the runs."""
    jobs: int = 2
    """Runs at the same time, each on one core."""

    def __call__(self) -> None:
        """Train what is missing, and write the pages."""
        from gpf.cli_world import typed_command
        from gpf.runs.progress import runs_progress
        from gpf.tasks.variants import find_study, train_variants, write_page, write_summary

        for name, least in (("seeds", 1), ("first_seed", 0)):
            if getattr(self, name) is not None and getattr(self, name) < least:
                raise ValueError(f"{name}: {getattr(self, name)}; accepted: at least {least}")
        studies = {task: find_study(task) for task in self.tasks}
        page = self.page or self.runs
        for task, study in studies.items():
            seeds = range(self.first_seed, self.first_seed + (self.seeds or study.seeds))
            with runs_progress(str(self.runs / task), len(seeds) * len(study.variants), _result_line) as tell:
                outcomes = train_variants(task, self.runs, seeds, self.jobs, tell)
            path = write_page(task, outcomes, page, typed_command())
            print(path.read_text())
            print(f"written: {path}")
        if (summary := write_summary(page)) is not None:
            print(f"written: {summary}")


@dataclass
class Sample:
    """Let a language model that gpf train shakespeare made go on with a text."""

    run: tyro.conf.Positional[Path]
    """Folder of the run."""
    prompt: str = "\n"
    """What it goes on from."""
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


def _shape(of: dict[str, Any]) -> str:
    return f"{of['depth']} layers, density {of['density']:.3f}, {of['parameters']:,} parameters"


def _round_line(metrics: dict[str, Any]) -> str:
    return f"round {metrics['round']}, {_shape(metrics)}"


def _result_line(result: dict[str, Any]) -> str:
    numbers = [f"{key.replace('_', ' ')} {value:.4g}" for key, value in result.items() if isinstance(value, float)]
    shown = [text for text in numbers if not text.startswith(("density", "seconds", "flops"))]
    return ", ".join([*shown, _shape(result)])
