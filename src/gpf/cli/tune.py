"""`gpf tune`: tunes the parameters of a hand-written policy for a world."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from gpf.cli.options import Positional
from gpf.cli.shared import check_writable, show_markdown
from gpf.plume.presets import PRESETS
from gpf.plume.scenario import Scenario

if TYPE_CHECKING:
    from gpf.navigation.evaluate import Evaluation


@dataclass
class Tune:
    """Tune a hand-written policy for a world, on episodes that no evaluation reports.

    Prints success and SPL before and after on tuning episodes that the search did not use, and writes the parameters
    to a file for gpf evaluate POLICY:FILE.json.
    """

    scenarios: Positional[tuple[str, ...]]
    """Worlds, each tuned for on its own: presets ({presets}), or all for all presets, or paths to .json files."""
    policy: Literal["cast-and-surge", "bilateral"] = "cast-and-surge"
    """Policy to tune."""
    set: tuple[str, ...] = ()
    """Changes to every scenario, as FIELD=VALUE, for example wind_speed=2."""
    seed: int = 0
    """Seed of the search."""
    effort: float = 1.0
    """Episodes of each candidate, in those of the default search, which takes a minute or so for most worlds."""
    out: Path = Path("runs/tune")
    """Folder of the parameters: POLICY-SCENARIO.json for each world."""
    shipped: bool = False
    """Also write the parameters to the package, where cast-and-surge-tuned finds those of a preset."""
    json: bool = False
    """Print one JSON object on the last line in place of the table."""

    def __call__(self) -> None:
        """Tune for every world, print, and write."""
        names = [each for name in self.scenarios for each in (PRESETS if name == "all" else (name,))]
        worlds = {name: Scenario.of(name).changed(self.set) for name in names}
        if not worlds:
            raise ValueError("scenarios must be at least one world, or all")
        if not 0.0 < self.effort <= 100.0:
            raise ValueError(f"effort must be above 0 and at most 100, got {self.effort:g}")
        if self.shipped and (self.policy != "cast-and-surge" or self.set or not set(names) <= set(PRESETS)):
            raise ValueError("--shipped needs cast-and-surge and presets without changes")
        files = {name: self.out / f"{self.policy}-{Path(name).stem}.json" for name in names}
        for file in files.values():
            check_writable(file, "--out")
        found = [self._tuned(name, world, files[name]) for name, world in worlds.items()]
        if self.json:
            print(json.dumps({"tuned": found}))
            return
        rows = "\n".join(
            f"| {r['scenario']} | {_shown(r['before'])} | {_shown(r['after'])} | {r['file']} |" for r in found
        )
        show_markdown(f"| world | before: success [95 %], SPL | after | parameters |\n|---|---|---|---|\n{rows}")

    def _tuned(self, name: str, world: Scenario, file: Path) -> dict[str, Any]:
        """Tune for a world, and write what was found."""
        from gpf.navigation.opponents.tuned import ship
        from gpf.navigation.opponents.tuning import ROUNDS, VALIDATION_EPISODES, scaled, tune

        rounds = scaled(ROUNDS, self.effort)
        validation = max(1, round(VALIDATION_EPISODES * self.effort))
        result = tune(self.policy, world, self.seed, rounds, validation, lambda line: self._say(f"{name}: {line}"))
        file.write_text(json.dumps(result.parameters, indent=1) + "\n")
        if self.shipped:
            ship(name, result.parameters)
        return {
            "scenario": name, "policy": self.policy, "seed": self.seed, "parameters": result.parameters,
            "before": _summary(result.before), "after": _summary(result.after), "file": str(file),
        }  # fmt: skip

    def _say(self, line: str) -> None:
        if not self.json:
            print(line, flush=True)


def _summary(result: "Evaluation") -> dict[str, Any]:
    """The reported numbers of an evaluation."""
    numbers = result.summary()
    return {name: numbers[name] for name in ("episodes", "success", "low", "high", "spl")}


def _shown(numbers: dict[str, Any]) -> str:
    return f"{numbers['success']:.1%} [{numbers['low']:.1%}, {numbers['high']:.1%}], {numbers['spl']:.3f}"
