"""Lambda-returns against a plain reference, and Expected SARSA against exact values."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import gpf
from gpf.navigation.flat import FlatNetwork
from gpf.navigation.parallel import ParallelLearner, Settings, lambda_returns
from gpf.navigation.rollouts import Rollouts
from gpf.plume import Scenario

pytestmark = pytest.mark.usefixtures("one_torch_thread")


def mean_value(values, exploration):
    policy = np.full(6, exploration / 6)
    policy[np.argmax(values)] += 1 - exploration
    return policy @ values


def plain_return(t, rewards, actions, values, final, ends, bootstraps, discount, gae_lambda, exploration, q_learning):
    """The lambda-return from step t on: the mixture of n-step returns, term by term."""
    n_step, discounted, weight, total = 0.0, 1.0, 1.0, 0.0
    for k in range(t, len(rewards)):
        n_step += discounted * rewards[k]
        discounted *= discount
        if ends[k]:
            rest = mean_value(final[k], exploration) if bootstraps[k] else 0.0
            return total + weight * (n_step + discounted * rest)
        ahead = n_step + discounted * mean_value(values[k + 1], exploration)
        if k == len(rewards) - 1 or (q_learning and actions[k + 1] != np.argmax(values[k + 1])):
            return total + weight * ahead
        total += weight * (1 - gae_lambda) * ahead
        weight *= gae_lambda
    raise AssertionError


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 1000), discount=st.floats(0, 1), gae_lambda=st.floats(0, 1), exploration=st.floats(0, 1),
    often=st.sampled_from([0.0, 0.1, 0.5]), q_learning=st.booleans(),
)  # fmt: skip
def test_returns_equal_the_plain_reference(seed, discount, gae_lambda, exploration, often, q_learning):
    rng = np.random.default_rng(seed)
    rewards = rng.normal(size=(12, 3)).astype(np.float32)
    values, final = rng.normal(size=(13, 3, 6)).astype(np.float32), rng.normal(size=(12, 3, 6)).astype(np.float32)
    ends = rng.random((12, 3)) < often
    bootstraps = ends & (rng.random((12, 3)) < 0.5)
    actions = np.where(rng.random((12, 3)) < 0.5, values[:-1].argmax(2), rng.integers(0, 6, (12, 3)))
    out = np.zeros((12, 3), np.float32)
    lambda_returns(
        rewards, actions, values, final, ends, bootstraps, discount, gae_lambda, exploration, q_learning, out
    )  # fmt: skip
    for i in range(3):
        lane = (rewards[:, i], actions[:, i], values[:, i], final[:, i], ends[:, i], bootstraps[:, i])
        wanted = [plain_return(t, *lane, discount, gae_lambda, exploration, q_learning) for t in range(12)]
        np.testing.assert_allclose(out[:, i], wanted, atol=1e-4)


LANES = 512
REWARDS = np.array([[0, 1, 0, 0, 2, -1], [1, 0, 0, 3, 0, 0], [0, 0, -2, 0, 1, 0], [5, 0, 0, 1, 0, 0]], float)
FOLLOWING = np.array([[1, 2, 3, 0, 1, 2], [2, 3, 0, 1, 2, 3], [3, 0, 1, 2, 3, 0], [-1, 1, 2, 0, -1, 3]])  # -1: the end


def exact_values(discount, exploration, q_learning):
    """Action values of four states by repeating the Bellman equation until nothing moves."""
    values = np.zeros((4, 6))
    for _ in range(2000):
        ahead = [mean_value(values[s], 0.0 if q_learning else exploration) for s in range(4)] + [0.0]
        values = REWARDS + discount * np.array(ahead)[FOLLOWING]
    return values


@pytest.mark.parametrize(("q_learning", "gae_lambda"), [(False, 0.0), (False, 0.9), (True, 0.0), (True, 0.9)])
def test_it_finds_the_exact_values_of_a_small_problem(q_learning, gae_lambda):
    """Four states, six actions, learnt as a table by the returns that the learner uses."""
    rng, exploration, discount = np.random.default_rng(0), 0.3, 0.9
    table, state = np.zeros((4, 6), np.float32), np.zeros(LANES, int)
    horizon = 8
    for sweep in range(400):
        values, final = np.zeros((horizon + 1, LANES, 6), np.float32), np.zeros((horizon, LANES, 6), np.float32)
        rewards, ends = np.zeros((horizon, LANES), np.float32), np.zeros((horizon, LANES), bool)
        states, actions = np.zeros((horizon, LANES), int), np.zeros((horizon, LANES), int)
        for t in range(horizon):
            values[t], states[t] = table[state], state
            actions[t] = np.where(rng.random(LANES) < exploration, rng.integers(0, 6, LANES), table[state].argmax(1))
            rewards[t], state = REWARDS[state, actions[t]], FOLLOWING[state, actions[t]]
            ends[t] = state < 0
            state = np.where(ends[t], rng.integers(0, 4, LANES), state)
        values[horizon] = table[state]
        returns = np.zeros((horizon, LANES), np.float32)
        lambda_returns(
            rewards, actions, values, final, ends, np.zeros_like(ends), discount, gae_lambda,
            0.0 if q_learning else exploration, q_learning, returns,
        )  # fmt: skip
        counts, sums = np.zeros((4, 6)), np.zeros((4, 6))
        np.add.at(counts, (states, actions), 1.0)
        np.add.at(sums, (states, actions), returns)
        seen = counts > 0
        table[seen] += 1.0 / (1.0 + sweep / 20) * (sums[seen] / counts[seen] - table[seen])
    np.testing.assert_allclose(table, exact_values(discount, exploration, q_learning), rtol=0.02, atol=0.05)


def learner(observation="onehot", **settings_):
    torch.manual_seed(1)
    model = gpf.MLP(22 if observation == "onehot" else 16, 16, 6, layer_norm=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    scenario = Scenario.of({"preset": "reference", "max_steps": 50}).rewarded("search", 0.99, 0.4)
    made = Rollouts(8, 16, scenario, observation, 6, seed=2, threads=1)
    return ParallelLearner(model, optimizer, made, Settings(**{"minibatch": 64, **settings_}))


@pytest.mark.parametrize("observation", ["onehot", "memory"])
def test_the_same_seed_gives_the_same_run_bit_for_bit(observation):
    runs = [learner(observation) for _ in range(2)]
    for one in runs:
        torch.manual_seed(9)
        for k in range(4):
            one.epoch(k / 4)
    for mine, theirs in zip(*(one.model.parameters() for one in runs), strict=True):
        assert torch.equal(mine, theirs)


def test_learning_brings_values_closer_to_their_returns():
    one = learner(update_epochs=30, gradient_clip=10.0)
    one.rollouts.collect(one.network, 0.5)
    before = one.rollouts.outputs.copy()
    one.learn(0.5)
    inputs = torch.from_numpy(one.rollouts.inputs[:-1])
    actions = torch.from_numpy(one.rollouts.actions)[..., None]
    chosen = [torch.as_tensor(v).gather(2, actions)[..., 0] for v in (before[:-1], one.model(inputs).detach())]
    errors = [float((c - torch.from_numpy(one.returns)).square().mean()) for c in chosen]
    assert errors[1] < 0.7 * errors[0]


def test_the_average_is_that_of_the_weights_after_each_rollout():
    """A plain mean at first, so that the random weights at the start have no part in it; then a running one."""
    one, seen = learner(ema=0.75), []
    for k in range(8):
        one.epoch(k / 8)
        seen.append(one.network.values.copy())
        if k < 4:
            np.testing.assert_allclose(one.average.values, np.mean(seen, axis=0), rtol=1e-4, atol=1e-6)
            average = one.average.values.copy()
        else:
            average = 0.75 * average + 0.25 * seen[-1]
    np.testing.assert_allclose(one.average.values, average, rtol=1e-4, atol=1e-6)


def test_the_average_begins_anew_where_an_event_changed_the_weights():
    one = learner()
    for k in range(3):
        one.epoch(k / 3)
    average = one.average.values.copy()
    one.rebind()  # as after freezing a layer
    np.testing.assert_array_equal(one.average.values, average)
    with torch.no_grad():
        one.model.layers[0].linear.weight[0] = 0.0  # as pruning does
    one.rebind()
    np.testing.assert_array_equal(one.average.values, one.network.values)


def test_exploration_and_learning_rate_fall():
    one, seen = learner(exploration_end=0.1), []
    one.rollouts.collect = lambda network, exploration: seen.append(exploration)
    one.learn = lambda exploration, lanes: None
    for progress in (0.0, 0.25, 0.5, 0.9):
        one.epoch(progress)
        assert one.optimizer.param_groups[0]["lr"] == pytest.approx(1e-3 * (1 - progress))
    assert seen == pytest.approx([1.0, 0.55, 0.1, 0.1])


def test_the_norm_of_the_gradient_is_clipped():
    """One step of plain gradient descent, with errors so large that it would otherwise go far."""
    moved = {}
    for clip in (0.0, 0.5):
        one = learner(update_epochs=1, minibatch=1000, gradient_clip=clip)
        one.optimizer = torch.optim.SGD(one.model.parameters(), lr=1.0)
        one.rollouts.collect(one.network)
        one.rollouts.rewards *= 1000.0
        before = one.network.values.copy()
        one.learn(0.5)
        moved[clip] = np.linalg.norm(one.network.values - before)
    assert moved[0.5] == pytest.approx(0.5, rel=1e-3)
    assert moved[0.0] > 5.0


@pytest.mark.parametrize("q_learning", [False, True])
def test_what_is_learned_are_the_returns_of_the_rollout(q_learning):
    """Q-learning takes the best next action, whatever the exploration; and every pass sees every step once."""
    one = learner(q_learning=q_learning, update_epochs=2, minibatch=50)
    r, s = one.rollouts, one.settings
    r.collect(one.network, 0.5)
    steps = []
    one.optimizer.register_step_pre_hook(lambda *_: steps.append(1))
    one.learn(0.5)
    assert len(steps) == 2 * 3  # 128 steps in minibatches of 50
    wanted = np.zeros_like(one.returns)
    lambda_returns(
        r.rewards, r.actions, r.outputs, r.final, r.ends, r.bootstraps, s.discount, s.gae_lambda,
        0.0 if q_learning else 0.5, q_learning, wanted,
    )  # fmt: skip
    np.testing.assert_array_equal(one.returns, wanted)


def test_flat_and_torch_share_memory_while_learning():
    one = learner()
    one.epoch(0.0)
    fresh = FlatNetwork(one.model)
    np.testing.assert_array_equal(fresh.values, one.network.values)


def test_others_walk_in_half_of_the_lanes_and_are_not_learnt_from():
    learnt = []
    for others in ([], [1], [2], [1, 2]):
        one = learner("memory")
        torch.manual_seed(9)
        for seed in range(2):
            models = [gpf.MLP(16, 16, 6, 1) for _ in others]
            for model, number in zip(models, others, strict=True):
                torch.nn.init.normal_(model.head.weight, generator=torch.Generator().manual_seed(number + seed))
            torch.manual_seed(seed)
            one.epoch(0.0, [FlatNetwork(model) for model in models])
        learnt.append(one)
    alone, first, second, both = (torch.cat([p.detach().flatten() for p in one.model.parameters()]) for one in learnt)
    assert torch.equal(first, second)
    assert torch.equal(first, both)
    assert not torch.equal(first, alone)
    assert not np.array_equal(learnt[1].rollouts.outputs[:, 4:], learnt[2].rollouts.outputs[:, 4:])
    assert [learnt[0].rollouts.own_lanes(others) for others in range(3)] == [8, 4, 4]
