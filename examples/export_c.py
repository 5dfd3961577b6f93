"""Export a navigator to C99, compile it, and check that it chooses what the navigator chooses.

python examples/export_c.py [--run zoo:reference] [--out export-c] [--quick]

gcc must be installed. `--run` also takes the folder of a run of your own, such as runs/plume-1.
"""

import argparse
from pathlib import Path

import gymnasium
import numpy as np

import gpf
from gpf.edge.builds import Library
from gpf.edge.export import export
from gpf.zoo import run_folder


def main() -> None:
    """Export, compile, and fly both on the same observations."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", default="zoo:reference")
    parser.add_argument("--out", type=Path, default=Path("export-c"))
    parser.add_argument("--quick", action="store_true", help="one episode")
    arguments = parser.parse_args()
    print(export(run_folder(arguments.run), "c", arguments.out, acting="greedy", episodes=2))
    library = Library(arguments.out)
    assert library.self_test == 0
    navigator = gpf.load_navigator(arguments.run, acting="greedy")
    env = gymnasium.make("gpf/Plume-v0", scenario=navigator.scenario, observation="raw")
    equal, total = 0, 0
    for seed in range(900, 901 if arguments.quick else 920):
        observation, _ = env.reset(seed=seed)
        navigator.reset()
        over, seen, chosen = False, [], []
        while not over:
            seen.append(observation[:5].copy())
            chosen.append(navigator.act(observation))
            observation, _, terminated, truncated, _ = env.step(chosen[-1])
            over = terminated or truncated
        same = library.replay(np.array(seen, np.float32)).ravel() == np.array(chosen)
        equal, total = equal + int(same.sum()), total + len(same)
    print(f"C and Python choose the same action in {equal:,} of {total:,} steps")


if __name__ == "__main__":
    main()
