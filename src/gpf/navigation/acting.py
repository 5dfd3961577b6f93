"""How a network acts: turns its outputs into an action."""

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gpf.navigation.flat import FlatNetwork, forward
from gpf.navigation.inputs import SEES, kept_inputs, write_inputs
from gpf.navigation.recurrent_flat import advance
from gpf.plume.kernels import kernel
from gpf.plume.memory import blank_memories, whiff_threshold
from gpf.plume.rng import next_bits, seed_streams, uniform
from gpf.plume.row import row_of
from gpf.plume.scenario import ACTIONS, LEVELS, OCTANTS, Scenario
from gpf.plume.tokens import STATES, level, octant

Acting = Literal["greedy", "sampled"]
"""`greedy` takes the action with the greatest output, `sampled` draws one from the softmax of the outputs."""


class NetworkPolicy:
    """A trained network as a policy: it makes its inputs from raw observations, as a robot would.

    Tokens, and the readings that count as whiffs, are those of the world that it was trained in, `tokenizer`, whatever
    world it acts in. Every episode draws from a stream of its own, independent of the
    others.

    Attributes:
        inputs: The network's inputs for each lane's last observation, shape (lanes, inputs).
        states: The memory of a recurrent network, shape (lanes, state size).
        outputs: The network's outputs for each lane's last observation, shape (lanes, outputs).
    """

    PER_LANE: ClassVar[tuple[str, ...]] = ("_streams", "_memories", "states", "inputs", "outputs")

    def __init__(
        self,
        network: FlatNetwork,
        observation: str,
        acting: Acting,
        tokenizer: Scenario,
        without: tuple[str, ...] = (),
    ) -> None:
        self.network = network
        self.observation = observation
        self.acting = acting
        self.keep: NDArray[np.float32] = kept_inputs(observation, without)
        self._tokenizer = row_of(tokenizer)
        self._activations = network.activations()[0]
        self._table = output_table(network, observation)
        self._memories = blank_memories(0, self._tokenizer["sensor_noise"])

    @property
    def lanes(self) -> int:
        """Episodes that it is acting in; none before `begin`."""
        return len(self._memories)

    @property
    def reckons(self) -> bool:
        """Whether it reckons its place: with memory it does."""
        return self.observation == "memory"

    @property
    def places(self) -> NDArray[np.void]:
        """Where it is by dead reckoning from its last whiff: structured array with fields x and y, m."""
        return self._memories

    @property
    def whiff(self) -> float:
        """The reading above which it notices a whiff: the threshold of its memory, or of the lowest level's token."""
        if self.observation == "memory":
            return float(whiff_threshold(self._tokenizer["sensor_noise"]))
        return float(self._tokenizer["level_edges"][0])

    def begin(self, seeds: Sequence[int], scenario: Scenario) -> None:
        """Forget everything and begin one episode per seed."""
        self._row = row_of(scenario)
        self._streams = seed_streams([(seed, 1) for seed in seeds])  # 1: not the world's own stream
        self._memories = blank_memories(len(seeds), self._tokenizer["sensor_noise"])
        self.inputs: NDArray[np.float32] = np.zeros((len(seeds), len(self.keep)), np.float32)
        self.states: NDArray[np.float32] = np.zeros((len(seeds), self.network.state_size), np.float32)
        self.outputs: NDArray[np.float32] = np.zeros((len(seeds), int(self.network.layers[-1]["outputs"])), np.float32)

    def forget(self, lanes: NDArray[np.bool_]) -> None:
        """Forget what was observed in some lanes, whose episodes are over; their random streams continue."""
        self._memories["age"][lanes] = -1
        self.states[lanes] = 0.0

    def redraw(self, seeds: Sequence[tuple[int, ...]]) -> None:
        """Draw from other random streams from now on: the first lanes from those of the seeds, the next again, ..."""
        self._streams = np.tile(seed_streams(seeds), (len(self._streams) // len(seeds), 1))

    def act(self, raw: NDArray[np.float32], lanes: NDArray[np.int64], actions: NDArray[np.int64]) -> None:
        """Choose actions in the lanes given by their indices; raw observations of all lanes have shape (n, 5)."""
        network = self.network
        _act(
            lanes, self._tokenizer, self._row, raw, self._memories, self._streams, SEES[self.observation],
            self.keep, 0.0 if self.acting == "greedy" else SAMPLED, network.layers, network.blocks, network.values,
            self._activations, self._table, self.inputs, np.empty(3, np.int64), self.states, self.outputs, actions,
        )  # fmt: skip


@kernel
def _act(
    lanes, tokenizer, p, raw, memories, streams, sees, keep, exploration, layers, blocks, values, activations, table,
    inputs, tokens, states, outputs, actions,
):  # fmt: skip
    for n in range(len(lanes)):
        i = lanes[n]
        tokens[0], tokens[1] = level(tokenizer, raw[i, 0]), level(tokenizer, raw[i, 1])
        tokens[2] = octant(tokenizer, raw[i, 2], raw[i, 3], raw[i, 4])
        write_inputs(sees, keep, p, tokens, raw[i], memories[i], inputs[i])
        respond(layers, blocks, values, activations, table, tokens, inputs[i], states[i], outputs[i])
        actions[i] = explore(outputs[i], exploration, streams[i])


def output_table(network: FlatNetwork, observation: str) -> NDArray[np.float32]:
    """The outputs of a network of the paper's 22 inputs for all 392 observations, shape (392, outputs).

    Where there are more observations, or the network remembers something, there is no such table.
    """
    if observation != "onehot" or network.state_size:
        return NO_TABLE
    table = np.zeros((STATES, int(network.layers[-1]["outputs"])), np.float32)
    _tabulate(network.layers, network.values, network.activations()[0], table)
    return table


@kernel
def _tabulate(layers, values, activations, table):
    for state in range(STATES):
        activations[0] = np.float32(0.0)
        activations[0, state // (LEVELS * OCTANTS)] = np.float32(1.0)
        activations[0, LEVELS + state // OCTANTS % LEVELS] = np.float32(1.0)
        activations[0, 2 * LEVELS + state % OCTANTS] = np.float32(1.0)
        forward(layers, values, activations)
        for k in range(table.shape[1]):
            table[state, k] = activations[len(layers), k]


NO_TABLE = np.zeros((0, 0), np.float32)
"""Lanes in which the network acts."""
SAMPLED = -1.0
"""In place of a share of random actions: all actions are drawn from the softmax."""


@njit(error_model="numpy")
def sample(outputs: NDArray[np.float32], stream: NDArray[np.uint64]) -> int:
    """An action drawn from the softmax of the first outputs."""
    top = outputs[0]
    for k in range(1, len(ACTIONS)):
        top = max(top, outputs[k])
    total = 0.0
    for k in range(len(ACTIONS)):
        total += np.exp(outputs[k] - top)
    left = uniform(stream) * total
    for k in range(len(ACTIONS) - 1):
        left -= np.exp(outputs[k] - top)
        if left < 0.0:
            return k
    return len(ACTIONS) - 1


@njit(error_model="numpy")
def greedy(outputs: NDArray[np.float32]) -> int:
    """The action of greatest output; the first, of several."""
    best = 0
    for action in range(1, len(ACTIONS)):
        if outputs[action] > outputs[best]:
            best = action
    return best


@njit(error_model="numpy")
def expected(values: NDArray[np.float32], exploration: float) -> float:
    """The mean value of an epsilon-greedy policy; with no exploration, the greatest value."""
    mean = 0.0
    for action in range(len(ACTIONS)):
        mean += values[action]
    return (1.0 - exploration) * values[greedy(values)] + exploration * mean / len(ACTIONS)


@njit(error_model="numpy")
def explore(outputs: NDArray[np.float32], exploration: float, stream: NDArray[np.uint64]) -> int | np.int64:
    """An epsilon-greedy action or, where exploration is negative, one from the softmax."""
    if exploration < 0.0:
        return sample(outputs, stream)
    if uniform(stream) < exploration:
        return np.int64((next_bits(stream) >> np.uint64(33)) % np.uint64(len(ACTIONS)))
    return greedy(outputs)


@njit(error_model="numpy")
def respond(
    layers: NDArray[np.void],
    blocks: NDArray[np.void],
    values: NDArray[np.float32],
    activations: NDArray[np.float32],
    table: NDArray[np.float32],
    tokens: NDArray[np.int64],
    inputs: NDArray[np.float32],
    state: NDArray[np.float32],
    out: NDArray[np.float32],
) -> None:
    """Write the network's outputs for a lane's observation, from the table if it exists; its state takes a step."""
    if len(table):
        state = (tokens[0] * LEVELS + tokens[1]) * OCTANTS + tokens[2]
        for k in range(len(out)):
            out[k] = table[state, k]
        return
    for i in range(len(inputs)):
        activations[0, i] = inputs[i]
    if len(blocks):
        advance(layers, blocks, values, activations, state, out)
        return
    forward(layers, values, activations)
    for k in range(len(out)):
        out[k] = activations[len(layers), k]
