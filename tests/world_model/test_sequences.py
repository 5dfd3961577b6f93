"""Sequences: what goes in comes out, and what is not a sequence is refused."""

import itertools
import json
import warnings
from dataclasses import replace
from pathlib import Path

import gymnasium
import minari
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpf.navigation.policies import make_policy
from gpf.plume.tokens import OBSERVATION_SIZES
from gpf.world_model.collection import FIRST_SEED, Wandering, _episodes, collect
from gpf.world_model.sequences import (
    Episode,
    decode,
    encode,
    make_dataset,
    read_dataset,
    read_minari,
    write_dataset,
    write_minari,
)

tokens = st.tuples(*(st.integers(0, size - 1) for size in OBSERVATION_SIZES))
episodes = st.lists(st.integers(0, 5), max_size=6).flatmap(
    lambda actions: st.lists(tokens, min_size=len(actions) + 1, max_size=len(actions) + 1).map(
        lambda seen: Episode(np.array(seen), np.array(actions, np.int64))
    )
)


def test_a_sequence_worked_by_hand():
    episode = Episode(np.array([[0, 0, 3], [1, 2, 7]]), np.array([4]))
    # 392 observations, then 6 actions, then PAD BOS EOS RESET; (1 * 7 + 2) * 8 + 7 = 79
    assert encode([episode]).tolist() == [399, 3, 396, 79, 400]
    assert encode([episode, episode]).tolist() == [399, 3, 396, 79, 401, 3, 396, 79, 400]


@given(st.lists(episodes, min_size=1, max_size=4))
def test_what_is_encoded_is_decoded(some):
    back = decode(encode(some))
    assert len(back) == len(some)
    for one, other in zip(some, back, strict=True):
        assert (one.observations == other.observations).all()
        assert (one.actions == other.actions).all()


@pytest.mark.parametrize(
    ("seen", "done", "message"),
    [
        ([[7, 0, 0]], [], r"^left token must be from 0 to 6, got 7"),
        ([[0, -1, 0]], [], r"^right token must be from 0 to 6, got -1"),
        ([[0, 0, 8]], [], r"^wind token must be from 0 to 7, got 8"),
        ([[0, 0, 0], [0, 0, 0]], [6], r"^action must be from 0 to 5, got 6"),
        ([[0, 0, 0]], [1], r"^episode must have one observation more than actions, got 1 observations and 1 actions"),
    ],
)
def test_tokens_that_do_not_exist_are_refused(seen, done, message):
    with pytest.raises(ValueError, match=message):
        encode([Episode(np.array(seen), np.array(done, np.int64))])


@pytest.mark.parametrize(
    ("codes", "message"),
    [
        ([3, 392, 3, 400], "sequence must be BOS, episodes, EOS, got observation 3 ... EOS"),
        ([399, 3, 392, 3], "sequence must be BOS, episodes, EOS, got BOS ... observation 3"),
        ([399, 3, 4, 3, 400], "episode must alternate .*, got observation 4 at position 1"),
        ([399, 392, 4, 3, 400], "episode must alternate .*, got action 0 at position 0"),
        ([399, 3, 392, 400], "episode must alternate .*, got nothing at position 2"),
        ([399, 3, 392, 398, 400], "episode must alternate .*, got PAD at position 2"),
    ],
)
def test_what_is_not_of_the_layout_is_refused(codes, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        decode(np.array(codes))


def test_a_dataset_is_mapped_from_disk_as_it_was_written(dataset, tmp_path):
    write_dataset(dataset, tmp_path / "data")
    back = read_dataset(tmp_path / "data")
    assert isinstance(back.codes, np.memmap)
    for name in ("codes", "starts", "rewards", "found", "behaviours"):
        assert (getattr(back, name) == getattr(dataset, name)).all()
    assert back.about == json.loads(json.dumps(dataset.about))
    assert [len(one[0].actions) for one in back] == (np.diff(dataset.starts) // 2 - 1).tolist()
    with pytest.raises(ValueError, match=r"^data needs a new folder, and .* exists"):
        write_dataset(dataset, tmp_path / "data")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]


def test_a_dataset_of_another_vocabulary_or_a_damaged_one_is_refused(dataset, tmp_path):
    write_dataset(dataset, tmp_path / "data")
    about = json.loads((tmp_path / "data" / "about.json").read_text())
    (tmp_path / "data" / "about.json").write_text(json.dumps({**about, "vocabulary": 0}))
    with pytest.raises(ValueError, match=r" must have vocabulary version 1, got 0$"):
        read_dataset(tmp_path / "data")
    (tmp_path / "data" / "about.json").write_text(json.dumps(about))
    np.save(tmp_path / "data" / "rewards.npy", dataset.rewards[1:])
    with pytest.raises(ValueError, match=r" is damaged \(\d+ rewards for \d+\)"):
        read_dataset(tmp_path / "data")
    with pytest.raises(ValueError, match=r" cannot be read as a folder of gpf world data"):
        read_dataset(tmp_path / "nothing")
    (tmp_path / "data" / "found.npy").write_bytes(b"")
    with pytest.raises(ValueError, match=r" cannot be read as a folder of gpf world data"):
        read_dataset(tmp_path / "data")


@pytest.mark.parametrize("name", ["codes.npy", "rewards.npy", "about.json"])
def test_a_full_disk_is_reported_with_the_file(dataset, tmp_path, monkeypatch, name):
    mkdir = Path.mkdir

    def with_a_full_disk(self, *arguments, **options):
        mkdir(self, *arguments, **options)
        (self / name).symlink_to("/dev/full")

    monkeypatch.setattr(Path, "mkdir", with_a_full_disk)
    with pytest.raises(OSError) as caught:  # noqa: PT011 - its attributes are compared
        write_dataset(dataset, tmp_path / "data")
    assert caught.value.filename == str(tmp_path / "data" / name)
    assert not list(tmp_path.iterdir())


def test_a_dataset_in_two_is_the_dataset(dataset):
    first, second = dataset.split(0.25)
    assert len(first) + len(second) == len(dataset)
    for name in ("codes", "rewards", "found", "behaviours"):
        assert (np.concatenate([getattr(first, name), getattr(second, name)]) == getattr(dataset, name)).all()
    assert (second.sequence(0) == dataset.sequence(len(first))).all()


@pytest.mark.parametrize(
    ("count", "held_out", "learnt"), [(10, 0.25, 8), (10, 0.2, 8), (3, 0.01, 2), (3, 0.99, 1), (2, 0.5, 1)]
)
def test_both_parts_of_a_dataset_have_a_sequence(count, held_out, learnt):
    one = encode([Episode(np.zeros((2, 3), np.int64), np.zeros(1, np.int64))])
    whole = make_dataset([one] * count, np.zeros(count), [True] * count, [0] * count, {})
    assert [len(part) for part in whole.split(held_out)] == [learnt, count - learnt]


def test_a_dataset_of_one_sequence_or_a_share_of_all_cannot_be_split(dataset):
    for wrong in (0.0, 1.0):
        with pytest.raises(ValueError, match=f"^held_out must be above 0 .*, got {wrong} of"):
            dataset.split(wrong)
    with pytest.raises(ValueError, match="^held_out must be .* of at least 2 sequences, got 0.5 of 1"):
        dataset.split(0.0001)[1].split(0.5)


@pytest.mark.parametrize(
    ("codes", "starts"),
    [
        ([399, 402, 392, 3, 400, 399, 3, 400], [0, 5, 8]),  # no such code
        ([3, 3, 392, 3, 400, 399, 3, 400], [0, 5, 8]),  # does not begin with BOS
        ([399, 3, 392, 3, 3, 399, 3, 400], [0, 5, 8]),  # does not end with EOS
        ([399, 3, 392, 3, 400, 399, 400], [0, 5, 7]),  # an episode of nothing
        ([399, 3, 392, 3, 400, 399, 3, 400], [0, 5, 7]),  # ends before its end
        ([399, 3, 392, 3, 400, 399, 3, 400], [1, 5, 8]),  # begins after its beginning
    ],
)
def test_codes_that_are_not_sequences_are_refused(codes, starts, tmp_path):
    whole = make_dataset(
        [np.array(codes[:5], np.uint16), np.array(codes[5:], np.uint16)], np.zeros(1), [1, 0], [0, 0], {"world": {}}
    )
    write_dataset(replace(whole, starts=np.array(starts)), tmp_path / "data")
    with pytest.raises(ValueError, match=r" is damaged \((codes|starts)\)"):
        read_dataset(tmp_path / "data")


class Straight:
    """Always goes forward."""

    def begin(self, seeds, scenario):
        pass

    def act(self, raw, lanes, actions):
        actions[lanes] = 0


def wandered(chance, longest, steps=400):
    """What a policy that goes straight does when it wanders, shape (steps, 50)."""
    policy, lanes = Wandering(Straight(), 0, chance, longest), np.arange(50)
    policy.begin(range(50), None)
    done = np.zeros((steps, 50), np.int64)
    for actions in done:
        policy.act(np.zeros((50, 5), np.float32), lanes, actions)
    return done


def test_a_policy_wanders_as_often_and_as_long_as_it_is_told():
    assert not wandered(0.0, 10).any()
    done = wandered(0.02, 3)
    spells = [
        len(list(held)) for lane in done.T for action, held in itertools.groupby(lane.tolist()) if action
    ]  # two in a row, of the same action, are rare
    assert np.isin(spells, (1, 2, 3)).mean() > 0.95
    assert (np.bincount(spells)[1:4] > 50).all()
    # In a lane 0.02 of the free steps begin a spell of 2 on average; 5 of 6 are seen, for forward looks like no other.
    assert (done > 0).mean() == pytest.approx(5 / 6 * 0.04 / 1.04, rel=0.15)


def test_minari_and_back(dataset, tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    few = dataset.split(0.9)[0]
    write_minari(few, "plume/mixed-v0")
    back = read_minari("plume/mixed-v0")
    for name in ("codes", "starts", "rewards", "found", "behaviours"):
        assert (getattr(back, name) == getattr(few, name)).all()
    with pytest.raises(ValueError, match=r"^minari needs a new name, and 'plume/mixed-v0' exists"):
        write_minari(few, "plume/mixed-v0")
    with pytest.raises(ValueError, match=r"^minari must be one of .*, got 'plume/other-v0'"):
        read_minari("plume/other-v0")
    two = make_dataset([encode([*decode(few.sequence(0)), *decode(few.sequence(1))])], few.rewards[:0], [True], [0], {})
    with pytest.raises(
        ValueError, match=r"^minari has no RESET and needs one episode per sequence, got 2 in sequence 0"
    ):
        write_minari(two, "plume/two-v0")


def test_a_timeout_that_somebody_else_recorded_is_no_source(tmp_path, monkeypatch):
    """In some worlds a timeout is terminated and truncated both, and Minari's collector writes it so."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    buffers = [
        minari.data_collector.EpisodeBuffer(
            id=n, observations=np.zeros((2, 3), np.int64), actions=np.zeros(1, np.int64), rewards=np.zeros(1),
            terminations=np.array([True]), truncations=np.array([late]),
        )
        for n, late in enumerate((True, False))
    ]  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        minari.create_dataset_from_buffers("plume/other-v0", buffers, gymnasium.make("gpf/Plume-v0"))
    assert read_minari("plume/other-v0").found.tolist() == [False, True]


def test_what_was_collected_is_what_the_environment_does(short_world):
    """Replayed in the single environment, the same seeds and actions give the same tokens and rewards."""
    env = gymnasium.make("gpf/Plume-v0", scenario=short_world).unwrapped
    seeds = range(FIRST_SEED, FIRST_SEED + 5)
    for seed, (codes, rewards, found) in zip(
        seeds, _episodes(make_policy("reactive"), short_world, seeds), strict=True
    ):
        (episode,) = decode(codes)
        seen, _ = env.reset(seed=seed)
        assert seen.tolist() == episode.observations[0].tolist()
        for n, action in enumerate(episode.actions):
            seen, reward, terminated, truncated, info = env.step(int(action))
            assert seen.tolist() == episode.observations[n + 1].tolist()
            assert np.float32(reward) == rewards[n]
        assert terminated or truncated
        assert info["success"] == found


def test_collecting_is_reproducible_and_shares_are_kept(dataset, short_world):
    steps = [
        sum(len(one[0].actions) for one, who in zip(dataset, dataset.behaviours, strict=True) if who == number)
        for number in range(3)
    ]
    assert dataset.steps == sum(steps)
    assert np.allclose(np.array(steps) / dataset.steps, [0.2, 0.3, 0.5], atol=0.02)  # episodes are whole
    again = [collect({"random": (make_policy("random"), 1.0)}, short_world, 500, seed) for seed in (3, 3, 4)]
    assert (again[0].codes == again[1].codes).all()
    assert len(again[0].codes) != len(again[2].codes) or (again[0].codes != again[2].codes).any()
    with pytest.raises(ValueError, match="^steps must be at least 1, got 0"):
        collect({"random": (make_policy("random"), 1.0)}, short_world, 0)
    with pytest.raises(ValueError, match="^seed must be from 0 to .*, got -1"):
        collect({"random": (make_policy("random"), 1.0)}, short_world, 1, -1)
    with pytest.raises(ValueError, match="^shares of behaviours must be"):
        collect({"random": (make_policy("random"), 0.0)}, short_world, 1)


def test_episodes_of_a_dataset_have_seeds_of_its_own(short_world, monkeypatch):
    from gpf.world_model import collection

    used = []
    real = collection._episodes

    def noted(policy, scenario, seeds):
        used.extend(seeds)
        return real(policy, scenario, seeds)

    monkeypatch.setattr(collection, "EPISODES_AT_A_TIME", 4)
    monkeypatch.setattr(collection, "_episodes", noted)
    for seed in (0, 1):
        used.clear()
        collect(
            {"random": (make_policy("random"), 1.0), "reactive": (make_policy("reactive"), 1.0)},
            short_world,
            2000,
            seed,
        )
        first = collection.FIRST_SEED + seed * collection.SEEDS_OF_A_DATASET
        assert used == list(range(first, first + len(used)))
        assert len(used) > 8  # several times so many as are collected together
