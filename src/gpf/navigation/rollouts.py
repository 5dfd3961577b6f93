"""Rollouts: many lanes, and the observations, actions and rewards of their last steps.

One compiled function walks a lane through all steps of a rollout: observation, network, action, world. Lanes share
nothing, so threads take them without the interpreter lock, and results do not depend on the number of threads.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray

from gpf.navigation.acting import SAMPLED, explore, output_table, respond
from gpf.navigation.flat import FlatNetwork
from gpf.navigation.inputs import SEES, kept_inputs, write_inputs
from gpf.navigation.seeds import PROBE_SEED, training_seeds
from gpf.network import MLP
from gpf.plume.kernels import Record, copy, lean_kernel
from gpf.plume.memory import MEMORY_SIZE, blank_memories, remember
from gpf.plume.rng import seed_streams
from gpf.plume.scenario import ACTIONS, LEVELS, OCTANTS, Scenario
from gpf.plume.tokens import ONEHOT_SIZE, STATES, onehot
from gpf.plume.world import World, begin, cores, observe, step, terminal, thread_pool

Reward = Literal["search", "paper", "reference"]
"""The reward of a learner; see `gpf.plume.Scenario.rewarded`."""


@dataclass(frozen=True)
class Episodes:
    """Episodes that ended while an agent was learning; one entry each."""

    success: NDArray[np.bool_]
    steps: NDArray[np.int64]
    spl: NDArray[np.float64]
    """Success weighted by path length."""
    returns: NDArray[np.float64]
    """Sum of rewards."""


class Rollouts:
    """Lanes and the memory of their last `horizon` steps, T; n lanes, F inputs, K outputs.

    Attributes:
        inputs: float32 (T + 1, n, F), what the network saw; the last row is where the next rollout begins.
        outputs: float32 (T + 1, n, K), its outputs.
        states: float32 (T + 2, n, S), its memory before each step, if any; the last row but one is where
            the next rollout begins.
        actions: int64 (T, n). rewards: float32 (T, n).
        ends: bool (T, n), where an episode ended. bootstraps: bool (T, n), where it only ran out of time.
        final: float32 (T, n, K), the network's outputs for the last observation of the episodes that ended.
        privileged: float32 (T + 1, n, F + 16), the inputs of a privileged critic: those of the network and the memory
            features, which the network does not see. Empty unless asked for.
    """

    def __init__(
        self,
        count: int,
        horizon: int,
        scenario: Scenario,
        observation: str,
        outputs: int,
        seed: int,
        threads: int | None = None,
        without: tuple[str, ...] = (),
        privileged: bool = False,
        state_size: int = 0,
    ) -> None:
        self.world: World = World(count, scenario, threads=1)
        self.threads: int = threads or min(cores(), max(1, count // 32))
        self.observation = observation
        self.keep: NDArray[np.float32] = kept_inputs(observation, without)
        seeds = training_seeds(seed, count)
        self.world.seed(seeds)
        chances = [(one, 2) for one in seeds]  # 2: neither the world's stream nor a policy's
        self.chances: NDArray[np.uint64] = seed_streams(chances)
        self.memories: NDArray[np.void] = blank_memories(count, scenario.sensor_noise)
        self.starts: NDArray[np.float64] = np.zeros((count, 2))
        """Distance at the start of the episode, and the sum of rewards since, of each lane."""
        self.inputs: NDArray[np.float32] = np.zeros((horizon + 1, count, len(self.keep)), np.float32)
        self.outputs: NDArray[np.float32] = np.zeros((horizon + 1, count, outputs), np.float32)
        self.states: NDArray[np.float32] = np.zeros((horizon + 2, count, state_size), np.float32)
        self.final: NDArray[np.float32] = np.zeros((horizon, count, outputs), np.float32)
        remembered = len(self.keep) + MEMORY_SIZE if privileged else 0
        self.privileged: NDArray[np.float32] = np.zeros((horizon + 1, count, remembered), np.float32)
        self.actions: NDArray[np.int64] = np.zeros((horizon, count), np.int64)
        self.rewards: NDArray[np.float32] = np.zeros((horizon, count), np.float32)
        self.ends: NDArray[np.bool_] = np.zeros((horizon, count), np.bool_)
        self.bootstraps: NDArray[np.bool_] = np.zeros((horizon, count), np.bool_)
        self.successes: NDArray[np.bool_] = np.zeros((horizon, count), np.bool_)
        self.finished: NDArray[np.float64] = np.zeros((3, horizon, count))
        """Steps, SPL and return of the episodes that ended."""
        self._scratch = np.zeros((self.threads, *self.world.scratch.shape[1:]))
        self._begun = False

    @property
    def steps(self) -> int:
        """Steps of a rollout, over all lanes."""
        return self.actions.size

    def collect(self, network: FlatNetwork | Sequence[FlatNetwork], exploration: float = SAMPLED) -> Episodes:
        """Walk all lanes through a rollout, and return the episodes that ended in it.

        Actions are drawn from the softmax of the first outputs or, with `exploration` given, are epsilon-greedy. Where
        there are only 392 observations, the network is asked about each of them once, and a table answers. Several
        networks share the lanes; see `shares`.
        """
        networks = [network] if isinstance(network, FlatNetwork) else network
        shares = self.shares(len(networks))
        tables = [output_table(one, self.observation) for one in networks]
        activations = [one.activations(self.threads) for one in networks]
        bounds = np.linspace(0, self.world.count, self.threads + 1).astype(int)

        def work(thread: int) -> None:
            w = self.world
            for n, one in enumerate(networks):
                first, last = max(bounds[thread], shares[n]), min(bounds[thread + 1], shares[n + 1])
                _collect(
                    first, last, self._begun, exploration,
                    SEES[self.observation], self.keep, one.layers, one.blocks, one.values, activations[n][thread],
                    tables[n], w.arrays(scratch=self._scratch[thread]),
                    self.memories, self.chances, self.starts, self.inputs, self.states, self.outputs, self.final,
                    self.actions,
                    self.rewards, self.ends, self.bootstraps, self.successes, self.finished, self.privileged,
                )  # fmt: skip

        pool = thread_pool(max(1, self.threads - 1), os.getpid())
        others = [pool.submit(work, thread) for thread in range(1, self.threads)]
        work(0)
        for other in others:
            other.result()
        self._begun = True
        ended = self.ends
        return Episodes(
            self.successes[ended],
            self.finished[0][ended].astype(np.int64),
            self.finished[1][ended],
            self.finished[2][ended],
        )

    def shares(self, count: int) -> NDArray[np.int64]:
        """Where the lanes of each of `count` networks begin, and the last one's end."""
        return np.linspace(0, self.world.count, count + 1).astype(np.int64)

    def bounds(self, others: int) -> NDArray[np.int64]:
        """Bounds of a learner's own lanes, half of them if there are others, and of those of each of the others."""
        return np.concatenate([[0], self.shares(max(1, 2 * others))[max(1, others) :]])

    def own_lanes(self, others: int) -> int:
        """How many lanes, the first ones, are a learner's own beside so many others."""
        return int(self.bounds(others)[1])

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything on which the next rollout depends."""
        return {
            **self.world.state(), "memories": self.memories, "chances": self.chances, "starts": self.starts,
            "next_inputs": self.inputs[-1], "next_states": self.states[-2],
            "next_privileged": self.privileged[-1], "begun": np.array(self._begun),
        }  # fmt: skip

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """Restore a state."""
        for name, array in self.state().items():
            if name != "begun":
                array[...] = state[name]
        self._begun = bool(state["begun"])


def probe_inputs(
    scenario: Scenario, observation: str, without: tuple[str, ...] = (), count: int = 256
) -> NDArray[np.float32]:
    """A fixed batch of observations to look at a network with: all 392, or some of random walks with memory."""
    if observation == "onehot":
        states = np.arange(STATES)
        tokens = np.stack([states // (LEVELS * OCTANTS), states // OCTANTS % LEVELS, states % OCTANTS], axis=1)
        inputs = np.zeros((STATES, ONEHOT_SIZE), np.float32)
        onehot(tokens, inputs)
        return inputs
    walks = Rollouts(32, 128, scenario, observation, len(ACTIONS), PROBE_SEED, threads=1, without=without)
    with torch.random.fork_rng():  # the network has no say, but draws its weights
        network = FlatNetwork(MLP(len(walks.keep), 1, len(ACTIONS)))
    walks.collect(network, exploration=1.0)
    seen = walks.inputs.reshape(-1, walks.inputs.shape[2])
    return seen[np.linspace(0, len(seen) - 1, count).astype(int)]


@lean_kernel
def _collect(
    first, last, begun, exploration, sees, keep, layers, blocks, values, activations, table,
    world,
    memories, chances, starts, inputs, states, outputs, final, actions, rewards, ends, bootstraps, successes, finished,
    privileged,
):  # fmt: skip
    """Walk lanes `first` to `last` through a rollout; see `Rollouts`."""
    horizon = len(actions)
    for i in range(first, last):
        p, lane, tokens, raw, start = world.rows[i], world.lanes[i], world.tokens[i], world.raw[i], starts[i]
        if begun:
            for k in range(len(keep)):
                inputs[0, i, k] = inputs[horizon, i, k]
            copy(privileged[horizon, i], privileged[0, i])
            copy(states[horizon, i], states[0, i])
        else:
            _begin(world, i, memories[i], start, sees, keep, inputs[0, i], privileged[0, i])
        for t in range(horizon):
            state = states[t + 1, i]
            copy(states[t, i], state)
            respond(layers, blocks, values, activations, table, tokens, inputs[t, i], state, outputs[t, i])
            action = explore(outputs[t, i], exploration, chances[i])
            reward, success, failure = step(world, i, action)
            observe(world, i)
            after = inputs[t + 1, i]
            write_inputs(sees, keep, p, tokens, raw, memories[i], after)
            _note(p, raw, memories[i], after, privileged[t + 1, i])
            start[1] += reward
            actions[t, i] = action
            rewards[t, i] = reward
            ends[t, i] = success or failure
            successes[t, i] = success
            bootstraps[t, i] = failure and not terminal(p, lane, success, failure)
            if success or failure:
                respond(layers, blocks, values, activations, table, tokens, after, state, final[t, i])
                for k in range(len(state)):
                    state[k] = np.float32(0.0)
                finished[0, t, i] = lane.step
                finished[1, t, i] = path_length_score(p, lane, start[0]) if success else 0.0
                finished[2, t, i] = start[1]
                _begin(world, i, memories[i], start, sees, keep, after, privileged[t + 1, i])
        copy(states[horizon, i], states[horizon + 1, i])  # a step of which only the outputs count
        respond(
            layers, blocks, values, activations, table, tokens, inputs[horizon, i], states[horizon + 1, i],
            outputs[horizon, i],
        )  # fmt: skip


@njit(error_model="numpy")
def path_length_score(p: Record, lane: Record, start_distance: float) -> float:
    """The shortest possible number of steps over the number taken, of an episode that found the source."""
    shortest = np.ceil((start_distance - p.success_radius) / p.stride) if p.stride > 0.0 else 1.0
    return min(max(shortest, 1.0), lane.step) / lane.step


@njit(error_model="numpy")
def _begin(world, i, memory, start, sees, keep, inputs, privileged):
    begin(world, i)
    observe(world, i)
    p, lane, tokens, raw = world.rows[i], world.lanes[i], world.tokens[i], world.raw[i]
    memory.age = -1
    start[0], start[1] = lane.distance, 0.0
    write_inputs(sees, keep, p, tokens, raw, memory, inputs)
    _note(p, raw, memory, inputs, privileged)


@njit(error_model="numpy")
def _note(
    p: Record, raw: NDArray[np.float32], memory: Record, inputs: NDArray[np.float32], privileged: NDArray[np.float32]
) -> None:
    if len(privileged):
        copy(inputs, privileged)
        remember(memory, p.stride, p.max_steps, raw, privileged[len(inputs) :])
