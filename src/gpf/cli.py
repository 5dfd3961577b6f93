"""Grow-prune-freeze networks and the odour-plume world."""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

# Heavy imports stand inside the commands, so that `gpf --help` answers at once.


@dataclass
class Evaluate:
    """Measure how well a policy finds the source, over held-out episodes."""

    policy: str = "cast-and-surge"
    """Who searches: random, reactive or cast-and-surge."""
    scenario: str = "reference"
    """Where: a preset (paper, reference) or a path to a scenario's .json file."""
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

    def run(self) -> None:
        """Evaluate, print, and write the figure."""
        from gpf.navigation.evaluate import BLOCK, HELD_OUT, evaluate, film
        from gpf.navigation.figures import evaluation_figure, save_figure
        from gpf.navigation.policies import make_policy
        from gpf.plume.render import check_animation, save_animation
        from gpf.plume.scenario import Scenario
        from gpf.progress import episode_progress

        policy, scenario = make_policy(self.policy), Scenario.of(self.scenario)
        if not 0 <= self.seed < BLOCK:
            raise ValueError(f"seed: {self.seed}; accepted: 0 to {BLOCK - 1}")
        if self.paths < 0:
            raise ValueError(f"paths: {self.paths}; accepted: at least 0")
        figure = self.figure or Path("runs", "evaluate", f"{self.policy}-{Path(self.scenario).stem}.png")
        if figure.suffix != ".png":
            raise ValueError(f"figure: {str(figure)!r}; accepted: a path that ends in .png")
        _check_writable(figure)
        if self.animation is not None:
            check_animation(self.animation)
            _check_writable(self.animation)
        if not 1 <= self.episodes <= BLOCK:
            raise ValueError(f"episodes: {self.episodes}; accepted: 1 to {BLOCK}")
        first_seed = HELD_OUT + self.seed * BLOCK
        with episode_progress(f"{self.policy} on {self.scenario}", self.episodes) as progress:
            result = evaluate(
                policy, scenario, self.episodes, first_seed, threads=self.threads, paths=self.paths, progress=progress
            )
        summary = {"policy": self.policy, "scenario": self.scenario, "seed": self.seed, **result.summary()}
        rate = f"{summary['success']:.1%} [{summary['low']:.1%}, {summary['high']:.1%}]"
        save_figure(evaluation_figure(result, f"{self.policy} on {self.scenario}: {rate} of {self.episodes}"), figure)
        if self.animation is not None:
            save_animation(film(policy, scenario, first_seed), self.animation)
        if self.json:
            print(json.dumps({**summary, "figure": str(figure)}))
            return
        _print_summary(summary)
        print(f"figure: {figure}")
        if self.animation is not None:
            print(f"animation: {self.animation}")


@dataclass
class ShowScenario:
    """Print a scenario as JSON, to read or to start one of your own from."""

    scenario: tyro.conf.Positional[str] = "reference"
    """A preset (paper, reference) or a path to a scenario's .json file."""

    def run(self) -> None:
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


def main() -> None:
    """Run the command that the arguments name; a user's mistake ends in one line and exit code 2."""
    command = tyro.extras.subcommand_cli_from_dict(
        {"evaluate": Evaluate, "scenario": ShowScenario}, prog="gpf", description=__doc__
    )
    try:
        command.run()
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read our output has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (ValueError, RuntimeError, OSError) as error:
        print(f"gpf: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("gpf: interrupted", file=sys.stderr)
        sys.exit(130)
