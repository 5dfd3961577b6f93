"""The greedy policy for the paper's observation as a table of 392 actions, with a reader in C."""

import textwrap
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from gpf.edge.arrays import Array, characters, texts
from gpf.edge.c import TESTS, numbers, replay, template
from gpf.edge.flights import Flight
from gpf.edge.module import Network
from gpf.edge.policy import Policy
from gpf.plume.scenario import ACTIONS, LEVELS, OCTANTS
from gpf.plume.tokens import ONEHOT_SIZE, STATES, onehot
from gpf.runs.folder import replace_text

HEADER, SOURCE, TABLE = "gpf_table.h", "gpf_table.c", "gpf_table.bin"


def table_of(policy: Policy) -> NDArray[np.uint8]:
    """The best action for each of the 392 observations; see `gpf.plume.tokens.state_index`."""
    if policy.remembers:
        raise ValueError("export to table needs a navigator of observation onehot, got memory")
    states, inputs = np.arange(STATES), np.zeros((STATES, ONEHOT_SIZE), np.float32)
    onehot(np.stack([states // (LEVELS * OCTANTS), states // OCTANTS % LEVELS, states % OCTANTS], 1), inputs)
    with torch.no_grad():
        return Network(policy)(torch.from_numpy(inputs)).numpy().argmax(1).astype(np.uint8)


def write_table(folder: Path, policy: Policy, flights: Sequence[Flight]) -> None:
    """Write the table, also as 392 bytes of its own, and its reader; the self-test replays an episode's beginning."""
    table = table_of(policy)
    if not flights:
        raise ValueError("export to table needs at least one episode, for its self-test, got 0")
    sensors = np.concatenate([flight.sensors for flight in flights])
    sensors = sensors[np.linspace(0, len(sensors) - 1, min(TESTS, len(sensors))).astype(int)]
    wanted = replay(policy, sensors)[1].argmax(1)  # by torch, which does not see the table
    values = {
        **numbers(policy),
        "states": STATES,
        "table": textwrap.fill(", ".join(map(str, table)), 118, initial_indent="    ", subsequent_indent="    "),
        "data": f"{Array('float', 'test_sensors', sensors)}\n\n{Array('uint8_t', 'test_actions', wanted)}",
        "tests": len(sensors),
        "metadata": characters({**policy.about, "acting": "greedy", "numbers": "table"}),
        "names": texts(ACTIONS),
    }
    values["tokenizer"] = template("tokenizer.c").substitute(values)
    replace_text(folder / HEADER, template(HEADER).substitute(count=len(ACTIONS)))
    replace_text(folder / SOURCE, template(SOURCE).substitute(values))
    (folder / TABLE).write_bytes(table.tobytes())
