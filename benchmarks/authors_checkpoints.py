"""The authors' published checkpoints, flown in our `reference` world, to see whether the worlds agree.

    python benchmarks/authors_checkpoints.py PATH [--episodes 60000] [--write] [--json]

PATH is a checkout of the authors' code. Nothing of it is run: the networks are read from checkpoints/gpf and copied
into ours. `--write` puts the table into docs/results/README.md.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from documents import insert
from numpy.typing import NDArray
from torch import nn

from gpf.navigation.acting import NetworkPolicy
from gpf.navigation.evaluate import evaluate
from gpf.navigation.flat import FlatNetwork
from gpf.network import MLP
from gpf.plume.scenario import Scenario
from gpf.reports.statistics import wilson
from gpf.reports.tables import markdown_table

EXPECTED = {"network_best_gpf": (0.961, 311), "network_best_baseline_exp_best": (0.963, 286)}
"""Success and mean steps over 3,000 episodes in a prototype of their world, made before this one."""
OTHERS = ("network_final_gpf", "network_best_baseline", "network_final_baseline")


def main() -> None:
    """Fly them all, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    parser.add_argument("--episodes", type=int, default=60_000, help="of the two that the paper reports")
    parser.add_argument("--write", action="store_true", help="put the table into docs/results/README.md")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    arguments = parser.parse_args()
    scenario = Scenario.preset("reference")
    header = [
        "checkpoint", "hidden layers", "hidden weights that are not zero", "3,000 episodes: success [95 %]",
        f"{arguments.episodes:,} episodes: success [95 %]", "mean steps, failures included", "prototype, 3,000",
    ]  # fmt: skip
    rows = []
    found: dict[str, Any] = {}
    for name in (*EXPECTED, *OTHERS):
        network = read_network(arguments.path / "checkpoints" / "gpf" / f"{name}.pt")
        weights = torch.cat([linear.weight.flatten() for linear in linears(network)[:-1]])
        held = float((weights != 0).double().mean())
        policy = NetworkPolicy(FlatNetwork(network), "onehot", "greedy", scenario)
        flown = evaluate(policy, scenario, arguments.episodes if name in EXPECTED else 3000)
        steps = float(flown.steps.mean())
        before = f"{EXPECTED[name][0]:.1%}, {EXPECTED[name][1]} steps" if name in EXPECTED else "-"
        long = rate(flown.success) if name in EXPECTED else "-"
        short = rate(flown.success[:3000])
        rows.append([name, len(network.layers), f"{held:.1%}", short, long, f"{steps:.0f}", before])
        found[name] = {
            "success_3000": float(flown.success[:3000].mean()),
            "success": float(flown.success.mean()),
            "steps": steps,
            "density": held,
        }
    text = markdown_table(header, rows)
    print(text)
    if arguments.write:
        insert("docs/results/README.md", "authors", text)
    if arguments.json:
        print(json.dumps(found))


def rate(success: NDArray[np.bool_]) -> str:
    """A success rate and Wilson's interval."""
    low, high = wilson(int(success.sum()), len(success))
    return f"{success.mean():.1%} [{low:.1%}, {high:.1%}]"


def linears(model: Any) -> list[nn.Linear]:
    """The linear layers of an MLP, in order."""
    return [*(layer.linear for layer in model.layers), model.head]


def read_network(path: Path) -> MLP:
    """A network of theirs as one of ours: linear layers in order, ReLU between them."""
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)["network_state_dict"]
    except (OSError, KeyError) as error:
        raise SystemExit(
            f"path: no checkpoint at {path} ({error}); accepted: a checkout of the authors' code"
        ) from None
    weights = [tensor for name, tensor in state.items() if name.endswith("weight")]
    biases = [tensor for name, tensor in state.items() if name.endswith("bias")]
    model = MLP(weights[0].shape[1], weights[0].shape[0], weights[-1].shape[0], len(weights) - 1)
    with torch.no_grad():
        for linear, weight, bias in zip(linears(model), weights, biases, strict=True):
            linear.weight.copy_(weight)
            linear.bias.copy_(bias)
    return model


if __name__ == "__main__":
    main()
