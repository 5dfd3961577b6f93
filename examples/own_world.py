"""A world of your own: a narrow, gusty hall with a slow sensor; its plume, and how agents do in it.

python examples/own_world.py [--quick]

Writes hall.json, for `gpf train --scenario hall.json`, and hall.gif.
"""

import argparse
import json
from pathlib import Path

import gpf
from gpf.navigation import CastAndSurge, evaluate
from gpf.navigation.evaluate import film
from gpf.navigation.seeds import TUNING
from gpf.plume import Scenario
from gpf.plume.render import save_animation

HALL = {
    "preset": "turbulent",
    "width": 20.0,
    "height": 8.0,
    "wind_speed": [0.6, 1.2],  # a range, from which every episode draws
    "sensor_kind": "linear",
    "sensor_rise_time": 0.5,
    "sensor_recovery_time": 1.5,
}


def main() -> None:
    """Make the world, look at it, and let agents search in it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="ten episodes")
    episodes = 10 if parser.parse_args().quick else 500
    hall = Scenario.of(HALL)
    Path("hall.json").write_text(json.dumps(HALL, indent=1) + "\n")
    assert Scenario.of("hall.json") == hall
    agents = {"cast-and-surge": CastAndSurge(), "zoo:turbulent": gpf.load_navigator("zoo:turbulent").policy}
    for name, agent in agents.items():
        summary = evaluate(agent, hall, episodes, first_seed=TUNING).summary()
        print(f"{name}: success {summary['success']:.1%} [{summary['low']:.1%}, {summary['high']:.1%}]")
    save_animation(film(agents["zoo:turbulent"], hall, TUNING, every=50 if episodes == 10 else None), "hall.gif")
    print("hall.json, hall.gif")


if __name__ == "__main__":
    main()
