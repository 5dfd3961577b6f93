"""Agents in plumes of a CFD simulation: the halls of GSL-Bench, replayed.

    python benchmarks/recorded_plumes.py --environments PATH [--navigator RUN] [--episodes 500] [--frames DIR] [--write]

PATH is `examples/environments` of a checkout of GSL-Bench. Each hall is cut at the height of its source. Concentrations
are scaled such that the 99th percentile within 1 m of the source is 0.5, so that the thresholds of the presets apply.
The first two minutes, in which the plume builds up, are left out. RUN is the folder of a trained navigator, which never
saw these plumes. `--frames` saves a picture of each hall, `--write` puts the table into docs/plume.md.
"""

import argparse
import itertools
from pathlib import Path

import numpy as np
from documents import insert
from PIL import Image

from gpf.navigation.agents import load_navigator
from gpf.navigation.evaluate import evaluate, film
from gpf.navigation.policies import CastAndSurge, Policy, Random
from gpf.navigation.seeds import BLOCK, HELD_OUT
from gpf.plume.recorded import recording_of
from gpf.plume.recordings.filaments import read_filaments
from gpf.plume.scenario import Scenario
from gpf.reports.tables import markdown_table

HALLS = ("001", "002", "003")
SEEDS = HELD_OUT + 7_002 * BLOCK
"""Seeds of these episodes; comparisons use blocks from 0 on."""
BUILD_UP = 120.0
"""Time at the beginning of a recording that is left out, s."""
NEAR, PERCENTILE, LEVEL = 1.0, 99.0, 0.5
"""This percentile of the concentrations within `NEAR` m of the source is scaled to `LEVEL`."""


def main() -> None:
    """Evaluate, print, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environments", type=Path, required=True, help="examples/environments of GSL-Bench")
    parser.add_argument("--navigator", type=Path, action="append", default=[], help="folder of a run; may be repeated")
    parser.add_argument("--episodes", type=int, default=500)
    parser.add_argument("--frames", type=Path, help="folder for a picture of each hall")
    parser.add_argument("--write", action="store_true", help="put the table into docs/plume.md")
    arguments = parser.parse_args()
    policies: dict[str, Policy] = {"cast-and-surge": CastAndSurge()}
    policies |= {f"navigator {run.parent.name}": load_navigator(run).policy for run in arguments.navigator}
    policies["random"] = Random()
    rows = []
    for hall in HALLS:
        scenario = replayed(arguments.environments / hall)
        for name, policy in policies.items():
            one = evaluate(policy, scenario, arguments.episodes, SEEDS).summary()
            success = f"{one['success']:.1%} [{one['low']:.1%}, {one['high']:.1%}]"
            rows.append([hall, name, success, f"{one['spl']:.3f}", f"{scenario.recording_scale:.3g}"])
            print(rows[-1], flush=True)
        if arguments.frames is not None:
            save_frame(scenario, arguments.frames / f"hall-{hall}.png")
    table = markdown_table(["hall", "agent", "success [95 %]", "SPL", "scale (1/ppm)"], rows)
    print(table)
    if arguments.write:
        insert("docs/plume.md", "recorded plumes", table)


def replayed(folder: Path) -> Scenario:
    """A scenario that replays a hall, scaled; see above."""
    source = read_filaments(folder).header.source
    if source is None:
        raise ValueError(f"{folder} must say where the source is")
    scenario = Scenario(
        recording=str(folder), recording_height=float(source[2]), recording_skip=BUILD_UP,
        speed=0.5, start_distance_max=8.0, start_bearing=60.0,
    )  # fmt: skip
    recording = recording_of(scenario)
    assert recording is not None
    y, x = recording.pixel * (np.indices(recording.frames.shape[1:]) + 0.5)
    distance = np.hypot(x + recording.origin[0] - source[0], y + recording.origin[1] - source[1])
    level = np.percentile(recording.frames[:, distance < NEAR], PERCENTILE)
    return scenario.changed([f"recording_scale={LEVEL / level:.4g}"])


def save_frame(scenario: Scenario, path: Path) -> None:
    """A picture of cast-and-surge after half a minute, in an episode that lasts so long."""
    result = evaluate(CastAndSurge(), scenario, 100, SEEDS)
    lasting = np.flatnonzero(result.steps > 300)
    episode = int(lasting[0]) if len(lasting) else int(result.steps.argmax())
    frames = film(CastAndSurge(), scenario, SEEDS + episode, every=300)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(list(itertools.islice(frames, 2))[-1]).save(path)


if __name__ == "__main__":
    main()
