"""`gpf plume`: statistics of a scenario's plume, compared with field plumes."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpf.cli.options import Positional
from gpf.cli.shared import check_folder, show_markdown, typed_command
from gpf.plume.scenario import Scenario


@dataclass
class Plume:
    """Measure the statistics of a plume: intermittency, whiffs, blanks, profiles; compare them with field plumes.

    Probes stand downwind of a source at a fixed place. The page has the numbers, the checks and one figure.
    """

    scenario: Positional[str]
    """A preset ({presets}) or a path to a scenario's .json file."""
    set: tuple[str, ...] = ()
    """Changes, as FIELD=VALUE, for example wind_speed=2 diffusion=0.002."""
    seconds: float = 1800.0
    """Simulated time of each seed, s."""
    seeds: int = 5
    """Number of seeds, from 0 on."""
    threshold: float | None = None
    """Concentration above which the plume counts as smelled. Default: the scenario's whiff_threshold."""
    page: Path = Path("runs/plume")
    """Folder of the page, its figure and its numbers: plume-SCENARIO.md, .png and .json."""
    json: bool = False
    """Print one JSON object on the last line in place of the page."""

    def __call__(self) -> None:
        """Measure, and write the page."""
        scenario = Scenario.of(self.scenario).changed(self.set)
        if self.seeds < 1:
            raise ValueError(f"seeds must be at least 1, got {self.seeds}")
        check_folder(self.page, "--page")
        about: dict[str, Any] = {"scenario": self.scenario, **({"set": list(self.set)} if self.set else {})}
        path = self._measured(scenario, about)
        if self.json:
            from gpf.reports.pages import read_numbers

            print(json.dumps({"page": str(path), **read_numbers(path.with_suffix(".json"))}))
        else:
            show_markdown(path.read_text())
            print(f"written: {path}")

    def _measured(self, scenario: Scenario, about: dict[str, Any]) -> Path:
        """The page, with progress while it is measured."""
        from gpf.plume.measures import checked_threshold
        from gpf.plume.probes import total_steps
        from gpf.runs.progress import steps_progress
        from gpf.studies.plumes import measure_plume

        total = self.seeds * total_steps(scenario, self.seconds)
        if self.threshold is not None:
            checked_threshold(self.threshold)
        done = 0
        with steps_progress(f"plume of {self.scenario}", total) as show:

            def advance(steps: int) -> None:
                nonlocal done
                done += steps
                show(done)

            return measure_plume(
                scenario, about, self.seconds, range(self.seeds), self.threshold, self.page, self._name(),
                typed_command(), advance,
            )  # fmt: skip

    def _name(self) -> str:
        """Name of the page: of the scenario, and of what was changed."""
        world = Path(self.scenario).stem if self.scenario.lower().endswith(".json") else self.scenario
        return "-".join(["plume", world, *self.set])
