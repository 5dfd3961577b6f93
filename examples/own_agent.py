"""An agent of your own in the suite: it turns into the wind when it smells something, and casts across it otherwise.

python examples/own_agent.py [--quick]                                            # a few episodes, from Python
cd examples && gpf suite --quick --agent own_agent:make_agent --agents cast-and-surge   # as the suite runs it
"""

import argparse

import numpy as np
from numpy.typing import NDArray

from gpf.navigation.checked import Checked
from gpf.navigation.policies import CastAndSurge
from gpf.navigation.suite import held_out, world_of
from gpf.plume import ACTIONS, Scenario

FORWARD, LEFT, RIGHT = (ACTIONS.index(name) for name in ("forward", "left 15", "right 15"))


class Zigzag:
    """Heads upwind after a whiff, and to alternating sides of the wind without one."""

    def __init__(self, scenario: Scenario) -> None:
        self.tolerance = np.radians(scenario.turn_angle)
        self.whiff = 4.0 * scenario.sensor_noise + 1e-6

    def begin(self, seeds: list[int], scenario: Scenario) -> None:
        """Start one episode for each seed."""
        self.blank = np.full(len(seeds), 50)  # steps since the last whiff

    def act(self, raw: NDArray[np.float32], lanes: NDArray[np.int64], actions: NDArray[np.int64]) -> None:
        """Write an action for each lane."""
        seen = raw[lanes]
        self.blank[lanes] = np.where(seen[:, :2].max(1) > self.whiff, 0, self.blank[lanes] + 1)
        blank = self.blank[lanes]
        side = np.where((blank // 60) % 2 == 0, 1.0, -1.0)
        offset = np.where(blank < 8, 0.0, side * np.radians(80.0))
        off = (seen[:, 3] + np.pi + offset - seen[:, 4] + np.pi) % (2.0 * np.pi) - np.pi  # from the heading
        actions[lanes] = np.where(np.abs(off) <= self.tolerance, FORWARD, np.where(off > 0.0, LEFT, RIGHT))


def make_agent(scenario: Scenario) -> Zigzag:
    """The function that `gpf suite --agent` calls in every world."""
    return Zigzag(scenario)


def main() -> None:
    """Compare with cast-and-surge on episodes of the suite that are for tuning."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="five episodes in each world")
    episodes = 5 if parser.parse_args().quick else 100
    for name in ("reference", "turbulent"):
        world = world_of(name)
        scenario = world.scenario()
        for label, make in (("zigzag", make_agent), ("cast-and-surge", lambda scenario: CastAndSurge())):
            agent = Checked(make, label, name, scenario)  # checks every action
            summary = held_out(agent, world, scenario, seed=900, episodes=episodes).summary()
            print(f"{name}, {label}: success {summary['success']:.1%}, SPL {summary['spl']:.3f}")


if __name__ == "__main__":
    main()
