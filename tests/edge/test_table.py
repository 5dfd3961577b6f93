"""The table of 392 actions chooses what the network chooses, and its C reader what the table says."""

import ctypes
import subprocess

import numpy as np
import pytest
from edge_networks import greedy_actions, kernel_policy, make_exported

from gpf.edge.builds import FLAGS
from gpf.edge.table import SOURCE, TABLE, write_table


@pytest.mark.parametrize("kind", ["dense", "pruned"])
def test_the_reader_in_c_chooses_what_the_network_chooses(tmp_path, flights, kind):
    policy, model = make_exported("onehot", 2, kind)
    write_table(tmp_path, policy, flights["onehot"])
    assert len((tmp_path / TABLE).read_bytes()) == 392
    library = tmp_path / "table.so"
    subprocess.run(["gcc", *FLAGS, "-fPIC", "-shared", tmp_path / SOURCE, "-o", library], check=True)
    code, kernels = ctypes.CDLL(str(library)), kernel_policy(model, "onehot")
    assert code.gpf_self_test() == 0
    for flight in flights["onehot"]:
        chosen = [code.gpf_table_action(row.ctypes.data_as(ctypes.c_void_p)) for row in flight.sensors]
        np.testing.assert_array_equal(chosen, greedy_actions(kernels, flight))
    bad = np.array([np.nan, 0, 1, 0, 0], np.float32)
    assert code.gpf_table_action(bad.ctypes.data_as(ctypes.c_void_p)) == -1


def test_a_navigator_with_memory_has_no_table(tmp_path, flights):
    policy, _ = make_exported("memory", 1, "dense")
    with pytest.raises(ValueError, match="table needs a navigator of observation onehot, got memory"):
        write_table(tmp_path, policy, flights["memory"])
    assert not list(tmp_path.iterdir())
