"""An emulated Cortex-M4F chooses what this machine chooses. A missing toolchain fails, and says what to install."""

import numpy as np
import pytest
from edge_networks import make_exported

from gpf.edge import builds
from gpf.edge.builds import Library
from gpf.edge.c import write_c
from gpf.edge.m4 import PACKAGES, measure_object, replay_on_m4

CASES = [
    ("memory", 2, "dense", {}),
    ("memory", 3, "pruned", {"sequential": True}),
    ("memory", 2, "normalised", {"quantised": True}),
    ("onehot", 1, "dense", {}),
]


@pytest.mark.parametrize(("observation", "depth", "kind", "options"), CASES)
def test_the_board_chooses_what_this_machine_chooses(tmp_path, flights, observation, depth, kind, options):
    policy, _ = make_exported(observation, depth, kind)
    write_c(tmp_path, policy, flights[observation], **options)
    sensors = np.concatenate([flight.sensors for flight in flights[observation][:2]])
    board = replay_on_m4(tmp_path, sensors)
    assert board.wrong == 0
    assert len(sensors) > 100
    np.testing.assert_array_equal(board.actions, Library(tmp_path).replay(sensors))
    weights = sum(layer.weight.size for layer in policy.layers)
    assert 100 < board.instructions < 5000 + 12 * weights


def test_a_pruned_navigator_takes_less_flash(tmp_path, flights):
    sizes = []
    for kind in ("dense", "pruned"):
        folder = tmp_path / kind
        folder.mkdir()
        write_c(folder, make_exported("memory", 2, kind)[0], flights["memory"])
        sizes.append(measure_object(folder))
    assert sizes[1].flash < sizes[0].flash
    assert sizes[1].ram <= sizes[0].ram


def test_a_missing_compiler_says_what_to_install(monkeypatch):
    monkeypatch.setattr(builds.shutil, "which", lambda name: None)
    with pytest.raises(RuntimeError, match="arm-none-eabi-gcc is missing; install it with: apt-get install"):
        builds.require("arm-none-eabi-gcc", PACKAGES)
