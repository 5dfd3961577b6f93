"""Episodes as sequences of tokens, and datasets of them: compact and memory-mapped, or as Minari's.

A sequence is BOS, o0, a0, o1, a1, ..., oT, EOS, as in the paper. Each position holds one whole number, its code: 0 to
391 are the observations (`gpf.plume.tokens.state_index`), followed by the six actions, PAD, BOS, EOS and RESET. If a
world restarts within a sequence, RESET separates the two episodes.
"""

import json
import shutil
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpf.plume.inputs import naming
from gpf.plume.scenario import ACTIONS, LEVELS, OCTANTS
from gpf.plume.tokens import (
    BOS,
    EOS,
    OBSERVATION_SIZES,
    PAD,
    RESET,
    SPECIAL_TOKENS,
    STATES,
    VOCABULARY_VERSION,
    state_index,
)

FIRST_ACTION = STATES
"""The code of action 0."""
FIRST_SPECIAL = STATES + len(ACTIONS)
CODES = FIRST_SPECIAL + len(SPECIAL_TOKENS)
"""Number of codes."""
PAD_CODE, BOS_CODE, EOS_CODE, RESET_CODE = (FIRST_SPECIAL + special for special in (PAD, BOS, EOS, RESET))

STREAMS = ("left", "right", "wind")
"""Of an observation's tokens."""

Codes = NDArray[np.uint16]


@dataclass(frozen=True)
class Episode:
    """Observations and actions, with one observation more than actions."""

    observations: NDArray[np.int64]
    """Tokens of the three streams, shape (T + 1, 3)."""
    actions: NDArray[np.int64]
    """Shape (T,)."""


def observation_codes(tokens: NDArray[np.int64]) -> NDArray[np.int64]:
    """The codes of observations whose tokens lie in the last axis; refuses tokens that do not exist."""
    tokens = np.asarray(tokens)
    for stream, (name, size) in enumerate(zip(STREAMS, OBSERVATION_SIZES, strict=True)):
        _check_range(f"{name} token", tokens[..., stream], size)
    return state_index(tokens)


def observation_tokens(codes: NDArray[Any]) -> NDArray[np.int64]:
    """The tokens of the three streams, in a new last axis, of the codes of observations."""
    codes = np.asarray(codes).astype(np.int64)
    _check_range("observation", codes, STATES)
    return np.stack([codes // (LEVELS * OCTANTS), codes // OCTANTS % LEVELS, codes % OCTANTS], axis=-1)


def action_codes(actions: NDArray[np.int64]) -> NDArray[np.int64]:
    """The codes of actions; refuses those that do not exist."""
    actions = np.asarray(actions)
    _check_range("action", actions, len(ACTIONS))
    return FIRST_ACTION + actions


def encode(episodes: Sequence[Episode]) -> Codes:
    """One sequence of one or more episodes of a lane."""
    parts: list[NDArray[np.int64]] = []
    for n, episode in enumerate(episodes):
        if len(episode.observations) != len(episode.actions) + 1:
            raise ValueError(
                f"episode must have one observation more than actions, got {len(episode.observations)} observations and"
                f" {len(episode.actions)} actions"
            )
        body = np.empty(2 * len(episode.actions) + 1, np.int64)
        body[0::2] = observation_codes(episode.observations)
        body[1::2] = action_codes(episode.actions)
        parts += [np.array([RESET_CODE if n else BOS_CODE]), body]
    if not parts:
        raise ValueError("episodes must not be empty")
    return np.concatenate([*parts, [EOS_CODE]]).astype(np.uint16)


def decode(codes: NDArray[Any]) -> list[Episode]:
    """The episodes of a sequence; refuses one that is not of the layout."""
    codes = np.asarray(codes).astype(np.int64)
    if len(codes) < 3 or codes[0] != BOS_CODE or codes[-1] != EOS_CODE:
        raise ValueError(f"sequence must be BOS, episodes, EOS, got {_name(codes[:1])} ... {_name(codes[-1:])}")
    inside = codes[1:-1]
    resets = np.flatnonzero(inside == RESET_CODE)
    episodes = []
    for body in np.split(inside, resets):
        body = body[1:] if len(body) and body[0] == RESET_CODE else body
        wrong = np.flatnonzero(
            np.where(np.arange(len(body)) % 2 == 0, body >= STATES, (body < FIRST_ACTION) | (body >= FIRST_SPECIAL))
        )
        if len(body) % 2 == 0 or len(wrong):
            at = int(wrong[0]) if len(wrong) else len(body)
            raise ValueError(
                f"episode must alternate observations and actions, with an observation first and last, got"
                f" {_name(body[at : at + 1])} at position {at}"
            )
        episodes.append(Episode(observation_tokens(body[0::2]), body[1::2] - FIRST_ACTION))
    return episodes


@dataclass(frozen=True)
class Dataset:
    """Sequences, mapped into memory.

    Attributes:
        codes: All sequences one after the other.
        starts: Where each begins; one more at the end.
        rewards: The world's reward of every action, in their order.
        found: Of each sequence, whether its last episode ended at the source.
        behaviours: Of each sequence, which of `about["behaviours"]` acted.
        about: How it was made.
    """

    codes: Codes
    starts: NDArray[np.int64]
    rewards: NDArray[np.float32]
    found: NDArray[np.bool_]
    behaviours: NDArray[np.uint8]
    about: dict[str, Any]

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def steps(self) -> int:
        """Number of actions."""
        return len(self.rewards)

    def sequence(self, index: int) -> Codes:
        """The codes of one sequence."""
        return self.codes[self.starts[index] : self.starts[index + 1]]

    def __iter__(self) -> Iterator[list[Episode]]:
        return (decode(self.sequence(index)) for index in range(len(self)))

    def split(self, held_out: float) -> tuple["Dataset", "Dataset"]:
        """The same in two: the last sequences, of which at least one, are held out."""
        if not 0.0 < held_out < 1.0 or len(self) < 2:
            raise ValueError(
                f"held_out must be above 0 and below 1, of at least 2 sequences, got {held_out} of {len(self)}"
            )
        first = min(len(self) - 1, max(1, round(len(self) * (1.0 - held_out))))
        return self._part(0, first), self._part(first, len(self))

    def _part(self, first: int, last: int) -> "Dataset":
        low, high = self.starts[first], self.starts[last]
        is_action = (self.codes >= FIRST_ACTION) & (self.codes < FIRST_SPECIAL)
        before, inside = int(is_action[:low].sum()), int(is_action[low:high].sum())
        return Dataset(
            self.codes[low:high],
            self.starts[first : last + 1] - low,
            self.rewards[before : before + inside],
            self.found[first:last],
            self.behaviours[first:last],
            self.about,
        )


_ARRAYS = {"codes": np.uint16, "starts": np.int64, "rewards": np.float32, "found": np.bool_, "behaviours": np.uint8}


def make_dataset(
    sequences: Iterable[Codes],
    rewards: NDArray[np.float32],
    found: Sequence[bool] | NDArray[np.bool_],
    behaviours: Sequence[int] | NDArray[np.uint8],
    about: dict[str, Any],
) -> Dataset:
    """A dataset in memory."""
    listed = list(sequences)
    starts = np.concatenate([[0], np.cumsum([len(one) for one in listed])]).astype(np.int64)
    codes = np.concatenate(listed) if listed else np.zeros(0, np.uint16)
    return Dataset(
        codes, starts, np.asarray(rewards, np.float32), np.asarray(found, np.bool_), np.asarray(behaviours, np.uint8),
        {**about, "vocabulary": VOCABULARY_VERSION},
    )  # fmt: skip


def write_dataset(dataset: Dataset, folder: str | Path) -> None:
    """Write a dataset to a new folder, which appears only when it is whole."""
    folder = Path(folder)
    if folder.exists():
        raise ValueError(f"data needs a new folder, and {folder} exists")
    unfinished = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    try:
        for name in _ARRAYS:
            with naming(folder / f"{name}.npy"):
                np.save(unfinished / f"{name}.npy", getattr(dataset, name))
        with naming(folder / "about.json"):
            (unfinished / "about.json").write_text(json.dumps(dataset.about, indent=2) + "\n")
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def read_dataset(folder: str | Path) -> Dataset:
    """A dataset that `write_dataset` wrote, mapped into memory."""
    folder = Path(folder)
    try:
        about = json.loads((folder / "about.json").read_text())
        arrays = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in _ARRAYS}
    except (OSError, ValueError, EOFError) as error:
        raise ValueError(f"{folder} cannot be read as a folder of gpf world data ({error})") from None
    if not isinstance(about, dict) or not isinstance(about.get("world"), dict):
        raise ValueError(f"{folder / 'about.json'} names no world; gpf world data writes one")
    if about.get("vocabulary") != VOCABULARY_VERSION:
        raise ValueError(f"{folder} must have vocabulary version {VOCABULARY_VERSION}, got {about.get('vocabulary')!r}")
    for name, kind in _ARRAYS.items():
        if arrays[name].dtype != kind or arrays[name].ndim != 1:
            raise ValueError(f"{folder / name}.npy must have type {np.dtype(kind)}, got {arrays[name].dtype}")
    dataset = Dataset(**arrays, about=about)
    _check_whole(dataset, folder)
    return dataset


def _check_whole(dataset: Dataset, folder: Path) -> None:
    codes, starts = dataset.codes, dataset.starts
    if len(starts) < 2 or starts[0] != 0 or starts[-1] != len(codes) or (np.diff(starts) < 3).any():
        raise ValueError(f"{folder} is damaged (starts); create it again with gpf world data")
    actions = int(((codes >= FIRST_ACTION) & (codes < FIRST_SPECIAL)).sum())
    sizes = {"rewards": actions, "found": len(dataset), "behaviours": len(dataset)}
    for name, size in sizes.items():
        if len(getattr(dataset, name)) != size:
            raise ValueError(
                f"{folder} is damaged ({len(getattr(dataset, name))} {name} for {size}); create it again with gpf world"
                " data"
            )
    if codes.max() >= CODES or (codes[starts[:-1]] != BOS_CODE).any() or (codes[starts[1:] - 1] != EOS_CODE).any():
        raise ValueError(f"{folder} is damaged (codes); create it again with gpf world data")


# Minari


def write_minari(dataset: Dataset, name: str) -> None:
    """Write every sequence of one episode each as a Minari dataset of this name, for others to learn from."""
    import gymnasium

    minari = find_minari()
    if name in minari.list_local_datasets():
        raise ValueError(f"minari needs a new name, and {name!r} exists")
    buffers, done = [], 0
    for index, episodes in enumerate(dataset):
        if len(episodes) != 1:
            raise ValueError(
                f"minari has no RESET and needs one episode per sequence, got {len(episodes)} in sequence {index}"
            )
        steps = len(episodes[0].actions)
        last = np.zeros(steps, np.bool_)
        last[-1:] = True
        buffers.append(
            minari.data_collector.EpisodeBuffer(
                id=index,
                observations=episodes[0].observations,
                actions=episodes[0].actions,
                rewards=dataset.rewards[done : done + steps].astype(np.float64),
                terminations=last & dataset.found[index],
                truncations=last & ~dataset.found[index],
            )
        )
        done += steps
    with warnings.catch_warnings(), naming(name):
        warnings.filterwarnings("ignore", r"`\w+` is set to None")  # whose data it is, is the user's to say
        made = minari.create_dataset_from_buffers(
            name,
            buffer=buffers,
            env=gymnasium.make("gpf/Plume-v0", scenario=dataset.about.get("world", "reference")),
            description="Odour-plume episodes as tokens, by a mix of behaviours.",
            algorithm_name=", ".join(dataset.about.get("behaviours", [])) or None,
            requirements=["gpf-networks"],
        )
    made.storage.update_metadata({"gpf_about": json.dumps(dataset.about)})
    made.storage.update_episode_metadata(
        [{"behaviour": int(behaviour)} for behaviour in dataset.behaviours], range(len(dataset))
    )


def read_minari(name: str) -> Dataset:
    """A Minari dataset of plume tokens, from any author."""
    minari = find_minari()
    try:
        source = minari.load_dataset(name)
    except FileNotFoundError:
        raise ValueError(f"minari must be one of {list(minari.list_local_datasets())}, got {name!r}") from None
    sizes = getattr(source.observation_space, "nvec", ())
    if tuple(int(size) for size in sizes) != OBSERVATION_SIZES or getattr(source.action_space, "n", 0) != len(ACTIONS):
        raise ValueError(
            f"{name!r} must have observations MultiDiscrete({list(OBSERVATION_SIZES)}) and actions"
            f" Discrete({len(ACTIONS)}), got {source.observation_space} and {source.action_space}"
        )
    about = json.loads(source.storage.metadata.get("gpf_about", "{}"))
    if about.get("vocabulary", VOCABULARY_VERSION) != VOCABULARY_VERSION:
        raise ValueError(f"{name!r} must have vocabulary version {VOCABULARY_VERSION}, got {about['vocabulary']!r}")
    sequences, rewards, found, behaviours = [], [], [], []
    for one, described in zip(
        source.iterate_episodes(), source.storage.get_episode_metadata(range(len(source))), strict=True
    ):
        sequences.append(encode([Episode(np.asarray(one.observations), np.asarray(one.actions))]))
        rewards.append(np.asarray(one.rewards, np.float32))
        found.append(bool(one.terminations[-1] and not one.truncations[-1]))  # in some worlds a timeout is both
        behaviours.append(int(described.get("behaviour", 0)))
    return make_dataset(sequences, np.concatenate(rewards), found, behaviours, about)


def find_minari() -> Any:
    """Minari, or an error that says how to install it."""
    try:
        import minari
    except ImportError:
        raise ValueError("Minari datasets need the extra data: pip install 'gpf-networks[data]'") from None
    return minari


def _check_range(what: str, values: NDArray[Any], size: int) -> None:
    wrong = (values < 0) | (values >= size)
    if np.any(wrong):
        raise ValueError(f"{what} must be from 0 to {size - 1}, got {int(np.asarray(values)[wrong].flat[0])}")


def _name(codes: NDArray[np.int64]) -> str:
    if not len(codes):
        return "nothing"
    code = int(codes[0])
    if code < STATES:
        return f"observation {code}"
    if code < FIRST_SPECIAL:
        return f"action {code - FIRST_ACTION}"
    return SPECIAL_TOKENS[code - FIRST_SPECIAL] if code < CODES else f"code {code}"
