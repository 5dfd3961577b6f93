"""Train the navigators that come with gpf again, and write each with its card to src/gpf/zoo.

    python benchmarks/zoo.py [NAME ...] [--runs runs/zoo] [--cards]

Runs that are finished in the folder of --runs are not repeated. Only what acting and fine-tuning need is kept: the
network, without optimizer, worlds and learner state. --cards only evaluates again what is there, and rewrites cards.
"""

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

from documents import ROOT

from gpf.navigation.agents import Navigator, load_navigator
from gpf.runs.folder import Run, read_config, read_result
from gpf.tasks.plume import TASK
from gpf.tasks.task import train_shown
from gpf.zoo import NAMES, PREFIX

FOLDER = ROOT / "src" / "gpf" / "zoo"
SEED = 1000
"""Of training and of the episodes on the card; no reported study uses it."""
SETTINGS: dict[str, dict[str, Any]] = {
    "reference": {},
    "turbulent": {"scenario": "turbulent"},
    "recurrent": {"learner": "recurrent"},
}
PURPOSE = {
    "reference": "The default navigator: a feed-forward network on features of memory, trained in the world of the"
    " paper's authors.",
    "turbulent": "The default navigator trained in `turbulent`, where the wind differs from place to place and odour"
    " comes in whiffs.",
    "recurrent": "A recurrent network, which learns what to remember, on the paper's 22 inputs: the levels of both"
    " antennae and the octant of the wind.",
}
WORLDS = ("reference", "paper", "turbulent", "gusty")
EPISODES = 2000
KEPT = ("learner", "observation", "acting", "reward", "average")
"""Of what a checkpoint says besides the network, what acting needs."""


def main() -> None:
    """Train what is missing, write the folders, and print what they weigh."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*NAMES, []], metavar="NAME", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--runs", type=Path, default=Path("runs", "zoo"), help="where to train (runs/zoo)")
    parser.add_argument("--cards", action="store_true", help="only evaluate again, and rewrite the cards")
    arguments = parser.parse_args()
    for name in arguments.names or NAMES:
        if not arguments.cards:
            keep(trained(name, arguments.runs / name), FOLDER / name)
        write_card(name)
        size = sum(path.stat().st_size for path in (FOLDER / name).rglob("*") if path.is_file())
        print(f"{PREFIX}{name}: {size / 1000:.0f} kB")


def trained(name: str, folder: Path) -> Path:
    """The folder of a finished run, which is trained first if it is not there."""
    if not (folder / "config.json").exists():
        train_shown(TASK, TASK.create(folder, TASK.of({"seed": SEED, **SETTINGS[name]})))
    elif read_result(folder) is None:
        train_shown(TASK, Run.open(folder), new=False)
    return folder


def keep(run: Path, folder: Path) -> None:
    """Write what acting needs of a run to a folder, in place of what is there."""
    net = load_navigator(run).net
    about = {name: value for name, value in net.extra.items() if name in KEPT}
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for file in ("config.json", "result.json"):
        shutil.copy(run / file, folder)
    net.optimizer.state.clear()  # fine-tuning begins with new moments
    for layer in net.stored.values():
        for _, moments in layer.values():
            moments.clear()
    net.before_growth = None
    net.save(folder / "checkpoints" / "last", extra=about)


def write_card(name: str) -> None:
    """Evaluate a navigator of the zoo, and write its card."""
    navigator = load_navigator(PREFIX + name)
    worlds = dict.fromkeys((navigator.config.scenario, *WORLDS))
    rows = {world: navigator.evaluate(EPISODES, world).summary() for world in worlds}
    for row in rows.values():
        del row["steps_per_second"]  # which says more of the machine
    (FOLDER / name / "results.json").write_text(json.dumps(rows, indent=1) + "\n")
    (FOLDER / name / "CARD.md").write_text(card(name, navigator, rows))


def card(name: str, navigator: Navigator, rows: dict[str, dict[str, Any]]) -> str:
    """The model card: what it is, how it was made, how well it does, and what it is not for."""
    written, net = read_config(FOLDER / name), navigator.net
    settings = "".join(f" --{key} {value}" for key, value in SETTINGS[name].items())
    versions = written["versions"]
    table = "\n".join(
        f"| `{world}` | {one['success']:.1%} [{one['low']:.1%}, {one['high']:.1%}] | {_steps(one)} | {one['spl']:.3f} |"
        for world, one in rows.items()
    )
    return f"""# {PREFIX}{name}

{PURPOSE[name]}

    gpf evaluate {PREFIX}{name} --seed {SEED}
    gpf export {PREFIX}{name} --to c

- **Made by**: `gpf train --seed {SEED}{settings}`, here by `make zoo`.
- **Network**: {net.count_parameters():,} parameters that are not pruned, {net.depth} hidden layers of width
  {navigator.config.width}, density {net.density:.2f}; it grew from one layer.
- **Input**: observation `{navigator.config.learner.observation}`, computed from raw sensor readings.
- **Output**: one of six actions, {navigator.policy.acting}.
- **Made with**: gpf {versions["gpf"]}, torch {versions["torch"]}, on {versions["cpu"]}.
- **Licence**: MIT, as gpf.

## Results

{EPISODES:,} held-out episodes in each world; none was used for training or validation. `results.json` has all numbers.

| world | success [95 % CI] | mean steps to the source | SPL |
|---|---|---|---|
{table}

## Limits

It was trained in simulation, in one world (`{navigator.config.scenario}`), at 10 decisions a second and 0.5 m/s. The
numbers are those of this one network, not of the training method; docs/results has studies over seeds. It has met no
obstacles and no second gas. Before you put it on a robot, read docs/robot.md: sensor units must match the scenario's.
"""


def _steps(summary: dict[str, Any]) -> str:
    return "-" if summary["mean_steps"] is None else f"{summary['mean_steps']:.0f}"


if __name__ == "__main__":
    main()
