"""`gpf suite`: every agent in every world on one page, with results of others and agents of your own."""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpf.cli.shared import Where, changed, check_folder, show_markdown, typed_command

if TYPE_CHECKING:
    from gpf.studies.suite import Plan

_OF_RUNS = ("agents", "agent", "worlds", "seeds", "first_seed", "episodes", "recordings", "quick", "runs")
"""Options that say what is run."""


@dataclass
class Suite:
    """Compare all agents in all worlds on fixed held-out episodes, and write a page; run again to resume.

    docs/suite.md says what is measured, how to take part with an agent of your own, and how to submit results.
    """

    agents: tuple[str, ...] = ()
    """Which agents of the suite. Default: all; with --agent only your own."""
    agent: str | None = None
    """Your own agent, as MODULE:FUNCTION; the function takes a scenario and returns a policy."""
    worlds: tuple[str, ...] = ()
    """Which worlds. Default: all; recorded ones need --recordings."""
    seeds: int | None = None
    """How many seeds. Default: 10; 1 with --quick. Slow learners have at most 3."""
    first_seed: int = 0
    """The first seed; from 900 on they are for tuning, and never reported."""
    episodes: int | None = None
    """Held-out episodes of each seed in each world. Default: 1000, which the suite prescribes; 8 with --quick."""
    recordings: Path | None = None
    """Folder examples/environments of a checkout of GSL-Bench, for the recorded worlds."""
    quick: bool = False
    """Try everything in about a minute: three worlds, few episodes, training that is too short to learn."""
    runs: Path | None = None
    """Folder of the runs. Default: runs/suite, or runs/suite-quick."""
    page: Path | None = None
    """Folder of the page, its figure and its numbers. Default: the folder of the runs."""
    name: str = "suite"
    """Name of the page."""
    list: bool = False
    """Print the version, the agents and the worlds, and do nothing else."""
    check: Path | None = None
    """Check a file of results (.json), and do nothing else."""
    add: tuple[Path, ...] = ()
    """Add files of results (.json) to the page, and train nothing."""
    where: Where = dataclasses.field(default_factory=Where)
    json: bool = False
    """Print one JSON object on the last line in place of the page."""

    def __call__(self) -> None:
        """List, check, add or run."""
        asked = [f"--{name}" for name in ("list", "check", "add") if getattr(self, name)]
        given = [f"--{name.replace('_', '-')}" for name in changed(self, *_OF_RUNS) if asked]
        if asked and (others := [*asked[1:], *(one for one in given if one != "--runs")]):
            raise ValueError(f"{asked[0]} cannot be combined with {others[0]}")
        if self.list:
            self._list()
        elif self.check is not None:
            self._check(self.check)
        elif self.add:
            self._add()
        else:
            self._run()

    def _list(self) -> None:
        from gpf.navigation.suite import EPISODES, WORLDS, version
        from gpf.reports.tables import markdown_table
        from gpf.tasks.agents import AGENTS

        if self.json:
            print(json.dumps({"version": version(), "agents": list(AGENTS), "worlds": list(WORLDS)}))
            return
        agents = [[name, one.kind, one.about] for name, one in AGENTS.items()]
        worlds = [[name, one.group, f"{one.episodes(EPISODES):,}"] for name, one in WORLDS.items()]
        show_markdown(
            f"Version {version()}\n\n{markdown_table(['agent', 'kind', 'what it is'], agents)}\n\n"
            + markdown_table(["world", "group", "episodes of a seed"], worlds)
        )

    def _check(self, path: Path) -> None:
        from gpf.navigation.suite import version
        from gpf.studies.suite_results import read_results

        results = read_results(path)
        said = {"file": str(path), "version": version(), "agents": [*results.agents], "records": len(results.records)}
        agents = ", ".join(results.agents)
        print(json.dumps(said) if self.json else f"{path} is valid: {len(results.records)} records of {agents}")

    def _add(self) -> None:
        from gpf.studies.suite import add_results

        folder = self.page or self.runs or Path("runs/suite")
        self._show(add_results(self.add, folder, self.name, typed_command()))

    def _run(self) -> None:
        from gpf.studies.suite import run_suite, write_suite

        plan, executor = self._plan(), self.where.executor()
        plan.check()
        runs = self.runs or Path("runs/suite-quick" if self.quick else "runs/suite")
        page = self.page or runs
        check_folder(page, "--page")
        with self._progress(runs, plan) as tell:
            results = run_suite(plan, runs, executor, tell)
        self._show(write_suite(results, {"protocol": plan.protocol}, page, self.name, typed_command()))

    def _plan(self) -> "Plan":
        from gpf.navigation.suite import EPISODES, SEEDS, names_of
        from gpf.studies.suite import QUICK_EPISODES, QUICK_WORLDS, Plan
        from gpf.tasks.agents import AGENTS, find_agent

        agents = self.agents or (() if self.agent else tuple(AGENTS))
        for name in agents:
            if ":" in name:
                raise ValueError(f"agents must be agents of the suite, got {name!r}; --agent takes one of your own")
            find_agent(name)
        if self.agent is not None and ":" not in self.agent:
            raise ValueError(f"agent must be MODULE:FUNCTION, got {self.agent!r}; --agents takes those of the suite")
        recordings = str(self.recordings) if self.recordings else ""
        return Plan(
            agents=(*agents, *([self.agent] if self.agent else [])),
            worlds=self.worlds or (QUICK_WORLDS if self.quick else names_of(recordings)),
            seeds=(1 if self.quick else SEEDS) if self.seeds is None else self.seeds,
            first_seed=self.first_seed,
            episodes=(QUICK_EPISODES if self.quick else EPISODES) if self.episodes is None else self.episodes,
            quick=self.quick,
            recordings=recordings,
        )

    def _progress(self, runs: Path, plan: "Plan") -> Any:
        from gpf.runs.progress import runs_progress
        from gpf.tasks.search import TASK

        return runs_progress(str(runs), plan.runs, TASK.describe, TASK.describe_result)

    def _show(self, path: Path) -> None:
        numbers = path.with_suffix(".json")
        if self.json:
            held = json.loads(numbers.read_text())
            print(json.dumps({"page": str(path), **{name: held[name] for name in ("version", "agents", "results")}}))
        else:
            show_markdown(path.read_text())
            print(f"written: {path}, {path.with_suffix('.png')}, {numbers}")
