"""The lanes of `PlumeVectorEnv` for stable-baselines3; the only file here that needs that library and torch."""

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from gpf.plume.inputs import shown
from gpf.plume.placement import PLACES, checked_options, starts_of
from gpf.plume.rewards import TERMS
from gpf.plume.scenario import Scenario
from gpf.plume.state import State
from gpf.plume.vector_env import PlumeVectorEnv

try:
    from stable_baselines3.common.vec_env.base_vec_env import VecEnv, VecEnvIndices, VecEnvObs
except ImportError:
    raise ImportError("gpf.plume.sb3 needs stable-baselines3; pip install stable-baselines3") from None


class PlumeVecEnv(VecEnv):
    """Plume worlds as a stable-baselines3 `VecEnv`, all stepped by one kernel call.

    It returns what `DummyVecEnv` over as many `PlumeEnv` returns, bit for bit, and is much faster. All that it returns
    is the caller's to keep. A lane's info has `success`, `distance`, `reward_terms` and `TimeLimit.truncated`; at the
    end of an episode also `terminal_observation`, and `is_success`, from which stable-baselines3 logs the success rate.
    In the scenario `reference`, running out of time is terminal: `TimeLimit.truncated` is False then, and nothing is
    bootstrapped.

    `seed` and `set_options` are for the next `reset`; options are those of `PlumeEnv`, one dictionary for all lanes or
    one per lane. `get_attr`, `set_attr` and `env_method` work on a `Lane` each. Wrap it in `VecMonitor` for the returns
    and lengths of episodes.

    Args:
        num_envs: Number of lanes.
        scenario: As for `PlumeVectorEnv`.
        observation: `tokens`, `onehot`, `raw` or `memory`.
        render_mode: None or `rgb_array`.
        threads: Threads to step with; None for one per core where there are lanes enough.
    """

    def __init__(
        self,
        num_envs: int = 1,
        scenario: str | dict[str, Any] | Scenario | list[Scenario] = "paper",
        observation: str = "tokens",
        render_mode: str | None = None,
        threads: int | None = None,
    ) -> None:
        self.lanes: PlumeVectorEnv = PlumeVectorEnv(num_envs, scenario, observation, "SameStep", render_mode, threads)
        self._each = [Lane(self.lanes, index) for index in range(self.lanes.num_envs)]
        self._actions: NDArray[np.int64] = np.zeros(self.lanes.num_envs, np.int64)
        super().__init__(self.lanes.num_envs, self.lanes.single_observation_space, self.lanes.single_action_space)
        self.metadata: dict[str, Any] = self.lanes.metadata

    def reset(self) -> VecEnvObs:
        """Begin an episode in every lane, with the seeds and options that were set; both are used once."""
        seeds = [seed for seed in self._seeds if seed is not None]
        resets = self._options_by_mask()
        for options in resets:  # all are checked before the first lane changes
            given = checked_options(options, ("reset_mask", *PLACES))
            starts_of(given, self.lanes.world, np.flatnonzero(options["reset_mask"]))
        for options in resets:
            observations, infos = self.lanes.reset(seed=seeds or None, options=options)
        self.reset_infos: list[dict[str, Any]] = _by_lane(infos)
        self._reset_seeds()
        self._reset_options()
        return observations.copy()

    def _options_by_mask(self) -> list[dict[str, Any]]:
        """Options for the vector environment: one dictionary for all lanes that have the same names in theirs."""
        if len(self._options) != self.num_envs:
            raise ValueError(
                f"options must be one dictionary or one per lane ({self.num_envs}), got {len(self._options)}"
            )
        alike: dict[tuple[str, ...], list[int]] = {}
        for index, options in enumerate(self._options):
            alike.setdefault(tuple(options), []).append(index)
        resets = []
        for names, members in alike.items():
            mask = np.zeros(self.num_envs, np.bool_)
            mask[members] = True
            places = {}
            for name in names:
                values = _stacked(name, [self._options[index][name] for index in members])
                places[name] = np.zeros((self.num_envs, *values.shape[1:]), values.dtype)
                places[name][members] = values
            resets.append({"reset_mask": mask, **places})
        return resets

    def step_async(self, actions: NDArray[np.int64]) -> None:
        """Record the actions."""
        self._actions = actions

    def step_wait(self) -> tuple[VecEnvObs, NDArray[np.float32], NDArray[np.bool_], list[dict[str, Any]]]:
        """Step every lane; those whose episode ends begin another, and its first observation is returned."""
        observations, rewards, terminations, truncations, infos = self.lanes.step(self._actions)
        dones = terminations | truncations
        by_lane = _by_lane(infos)
        if dones.any():
            final = _by_lane(infos["final_info"])
            for i in np.flatnonzero(dones):
                self.reset_infos[i] = by_lane[i]
                by_lane[i] = {
                    **final[i],
                    "terminal_observation": infos["final_obs"][i],  # a copy already
                    "is_success": final[i]["success"],
                }
        for info, truncated in zip(by_lane, (truncations & ~terminations).tolist(), strict=True):
            info["TimeLimit.truncated"] = truncated
        return observations.copy(), rewards.astype(np.float32), dones, by_lane

    def close(self) -> None:
        """Close the lanes."""
        self.lanes.close()

    def get_images(self) -> list[NDArray[np.uint8] | None]:
        """An image of every lane; None where the render mode is not `rgb_array`."""
        return list(self.lanes.render() or [None] * self.num_envs)

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        """An attribute of every `Lane`, or of those of `indices`."""
        return [getattr(lane, attr_name) for lane in self._chosen(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        """Set an attribute of every `Lane`, or of those of `indices`, for `get_attr` to find."""
        for lane in self._chosen(indices):
            setattr(lane, attr_name, value)

    def env_method(self, method_name: str, *args: Any, indices: VecEnvIndices = None, **kwargs: Any) -> list[Any]:
        """Call a method of every `Lane`, or of those of `indices`."""
        return [getattr(lane, method_name)(*args, **kwargs) for lane in self._chosen(indices)]

    def env_is_wrapped(self, wrapper_class: type, indices: VecEnvIndices = None) -> list[bool]:
        """False for every lane: wrappers of single environments cannot be around one of many lanes."""
        return [False for _ in self._chosen(indices)]

    def _chosen(self, indices: VecEnvIndices) -> "list[Lane]":
        return [self._each[index] for index in self._get_indices(indices)]


class Lane:
    """One lane, as `get_attr`, `set_attr` and `env_method` see it; it also keeps what `set_attr` gives it."""

    def __init__(self, lanes: PlumeVectorEnv, index: int) -> None:
        self._lanes = lanes
        self._index = index

    @property
    def observation_space(self) -> spaces.Space[Any]:
        """The space of its observations."""
        return self._lanes.single_observation_space

    @property
    def action_space(self) -> spaces.Space[Any]:
        """The space of its actions."""
        return self._lanes.single_action_space

    @property
    def observation(self) -> str:
        """Its kind of observation."""
        return self._lanes.observation

    @property
    def render_mode(self) -> str | None:
        """None or `rgb_array`."""
        return self._lanes.render_mode

    @property
    def metadata(self) -> dict[str, Any]:
        """Gymnasium's metadata."""
        return self._lanes.metadata

    def state(self) -> State:
        """Where everything is. **Privileged**, not for the agent; see `State`."""
        return self._lanes.state(self._index)

    def set_scenario(self, scenario: str | dict[str, Any] | Scenario) -> None:
        """Live in another scenario from now on."""
        self._lanes.set_scenario(scenario, np.array([self._index]))


def _stacked(name: str, values: list[Any]) -> NDArray[Any]:
    """An option's values in some lanes, as one array."""
    try:
        return np.stack([np.asarray(value) for value in values])
    except (ValueError, TypeError):  # of NumPy, which does not know the name
        raise ValueError(f"{name} must have the same shape in every lane, got {shown(values)}") from None


def _by_lane(infos: dict[str, Any]) -> list[dict[str, Any]]:
    """Infos of the vector environment as one dictionary of plain numbers for each lane."""
    terms = zip(*(infos["reward_terms"][name].tolist() for name in TERMS), strict=True)
    lanes = zip(infos["success"].tolist(), infos["distance"].tolist(), terms, strict=True)
    return [
        {"success": success, "distance": distance, "reward_terms": dict(zip(TERMS, values, strict=True))}
        for success, distance, values in lanes
    ]
