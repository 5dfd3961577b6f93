"""Ms Pac-Man: the games are Atari's, and what is learnt is Expected SARSA."""

import ale_py
import gymnasium
import numpy as np
import pytest
import torch
from torch import nn

from gpf.network import MLP
from gpf.tasks import mspacman
from gpf.tasks.mspacman import TASK, Games, NormalisedMLP, choose, scaled

pytestmark = pytest.mark.usefixtures("one_torch_thread")


def walk(games, seed, steps=120):  # a game begins with some seventy steps of music
    random = np.random.default_rng(0)
    frames = [games.begin(seed)]
    points = []
    for _ in range(steps):
        seen, gained, *_ = games.step(random.integers(9, size=games.lanes))
        frames.append(seen.copy())
        points.append(gained.copy())
    return np.array(frames), np.array(points)


def test_the_same_seed_and_actions_are_the_same_games():
    one, other, another = (walk(Games(2, 150), seed) for seed in (5, 5, 6))
    assert (one[0] == other[0]).all()
    assert (one[1] == other[1]).all()
    assert (one[0] != another[0]).any()
    assert one[0].shape == (121, 2, 3072)


def test_games_that_were_played_restart_as_fresh_ones_do():
    used, fresh = Games(2, 900), Games(2, 900)
    random, lost = np.random.default_rng(1), np.zeros(2, bool)
    used.begin(3)
    for _ in range(900):
        lost |= used.step(random.integers(9, size=2))[2]
    assert lost.any()  # one of them by the player's end
    one, other = walk(used, 5, 200), walk(fresh, 5, 200)
    assert (one[0] == other[0]).all()
    assert (one[1] == other[1]).all()
    assert one[1].sum() > 0


def test_the_games_are_those_of_gymnasium_s_environment():
    gymnasium.register_envs(ale_py)
    env = gymnasium.make("ALE/MsPacman-v5")
    frame, _ = env.reset(seed=0)
    assert env.action_space.n == mspacman.ACTIONS
    assert env.unwrapped._frameskip == mspacman.FRAMES_IN_A_STEP
    games = Games(1, 150)
    small = games.begin(0).reshape(32, 32, 3).astype(float)
    # Whoever shrinks a picture keeps what it looks like: here, the mean of each colour.
    assert np.abs(small.mean(axis=(0, 1)) - frame.mean(axis=(0, 1))).max() < 6.0
    env.close()


def test_a_game_ends_after_its_steps_and_begins_anew():
    games = Games(3, 20)
    games.begin(0)
    ended = [games.step(np.zeros(3, np.int64))[3].copy() for _ in range(25)]
    assert [n for n, some in enumerate(ended) if some.all()] == [19]
    assert sum(some.any() for some in ended) == 1


class Fixed(nn.Module):
    """Values that do not depend on anything."""

    def __init__(self, values):
        super().__init__()
        self.values = nn.Parameter(torch.tensor(values))

    def forward(self, x):
        return self.values.expand(len(x), -1)


def test_actions_are_the_best_but_for_a_share():
    model, random = Fixed([0.0, 3.0, 1.0, 0, 0, 0, 0, 0, 0]), np.random.default_rng(0)
    frames = np.zeros((20_000, 4), np.uint8)
    assert (choose(model, frames, 0.0, random) == 1).all()
    share = (choose(model, frames, 0.45, random) == 1).mean()
    assert share == pytest.approx(0.55 + 0.45 / 9, abs=0.01)


def test_the_target_is_that_of_expected_sarsa_by_hand(tmp_path):
    config = mspacman.Config(epochs=1, steps=5, discount=0.5, learning_rate=0.0)
    training = TASK.training(TASK.create(tmp_path / "run", config), config, None)
    training.net.model.forward = lambda x: Fixed([9.0, 0, 0, 0, 0, 0, 0, 0, 0])(x) + 0.0 * training.net.model.head.bias
    frames = np.zeros((2, 3072), np.uint8)
    loss = training._learn_from(
        frames, np.array([0, 1]), np.array([1.0, 1.0], np.float32), np.array([False, True]), frames, explore=0.1
    )
    # Of what comes then: 0.9 of the best, 9, and 0.1 of the mean, 1. The second game is over.
    first, second = 1.0 + 0.5 * (0.9 * 9.0 + 0.1 * 1.0) - 9.0, 1.0 - 0.0
    assert loss == pytest.approx((first**2 + second**2) / 2, rel=1e-6)


def test_bytes_become_numbers_from_0_to_1():
    assert scaled(np.array([[0, 51, 255]], np.uint8)).tolist() == [[0.0, pytest.approx(0.2), 1.0]]


def test_normalised_pixels_have_mean_0_and_deviation_1_but_for_those_that_never_change():
    torch.manual_seed(0)
    samples = torch.rand(500, 4) * torch.tensor([1.0, 0.1, 0.0, 10.0]) + 3.0
    torch.manual_seed(1)
    model = NormalisedMLP(4, 8, 2, depth=2)
    torch.manual_seed(1)
    plain = MLP(4, 8, 2, depth=2)
    torch.testing.assert_close(model(samples), plain(samples))  # before it knows any
    model.normalise_by(samples)
    seen = (samples.numpy() - samples.numpy().mean(0)) / np.sqrt(samples.numpy().var(0, ddof=1) + 0.02**2)
    torch.testing.assert_close(model(samples), plain(torch.from_numpy(seen)), rtol=1e-4, atol=1e-4)
    assert seen[:, [0, 3]].std(0) == pytest.approx([1.0, 1.0], abs=0.01)
    assert (seen[:, 2] == 0.0).all()


def test_a_run_normalises_by_random_play_and_keeps_by_what(tmp_path):
    config = mspacman.Config(
        epochs=1, steps=10, games=1, width=8, normalised_pixels=True, random_lanes=4, random_steps=100
    )
    TASK.train(TASK.create(tmp_path / "run", config))
    model = TASK.load(tmp_path / "run").model
    frames = mspacman.random_frames(4, 100)
    assert frames.shape == (400, 3072)
    torch.testing.assert_close(model.mean, frames.mean(0))
    assert model.deviation.min() >= 0.02
    assert model.deviation.max() > 0.1


def test_validation_and_report_are_other_games_than_those_learnt_from():
    seeds = {
        part: {mspacman._seed(seed, epoch, part) for seed in range(20) for epoch in range(100)}
        for part in (0, mspacman.VALIDATION, mspacman.TEST)
    }
    assert len(set.union(*seeds.values())) == 3 * 20 * 100
    assert max(seeds[mspacman.TEST]) < 2**31


def test_games_to_report_are_as_many_as_asked_for():
    games = Games(2, 130)
    model = Fixed([0.0, 0, 0, 1.0, 0, 0, 0, 0, 0])  # to the left
    scores = games.play(model, 3, 5)
    assert len(scores) == 5
    assert scores == games.play(model, 3, 5)
    assert min(scores) > 0


def test_random_play_is_that_of_eight_games_of_six_hundred_steps():
    config = mspacman.LONGER.of({})
    assert (config.random_lanes, config.random_steps) == (8, 600)
    assert config.normalised_pixels
    assert not TASK.of({}).normalised_pixels
