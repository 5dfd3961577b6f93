"""PPO: its advantages against stable-baselines3's, its loss against derivatives by hand."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3.common.buffers import RolloutBuffer

import gpf
from gpf.navigation.flat import FlatNetwork
from gpf.navigation.policy_gradient import Critic, PolicyGradientLearner, Settings, generalized_advantages
from gpf.navigation.rollouts import Rollouts
from gpf.plume import Scenario

pytestmark = pytest.mark.usefixtures("one_torch_thread")


@pytest.mark.parametrize("seed", range(5))
def test_advantages_equal_those_of_stable_baselines3(seed):
    rng = np.random.default_rng(seed)
    steps, lanes, discount, gae_lambda = 20, 4, 0.97, 0.9
    rewards = rng.normal(size=(steps, lanes)).astype(np.float32)
    values = rng.normal(size=(steps + 1, lanes)).astype(np.float32)
    ends = rng.random((steps, lanes)) < 0.15
    mine = np.zeros((steps, lanes), np.float32)
    generalized_advantages(rewards, values, ends, discount, gae_lambda, mine)

    buffer = RolloutBuffer(
        steps, spaces.Box(-1, 1, (1,)), spaces.Discrete(6), gae_lambda=gae_lambda, gamma=discount, n_envs=lanes
    )
    starts = np.vstack([np.zeros((1, lanes)), ends[:-1]])
    for t in range(steps):
        buffer.add(
            np.zeros((lanes, 1)),
            np.zeros(lanes),
            rewards[t],
            starts[t],
            torch.from_numpy(values[t]),
            torch.zeros(lanes),
        )
    buffer.compute_returns_and_advantage(torch.from_numpy(values[-1]), ends[-1].astype(float))
    np.testing.assert_allclose(mine, buffer.advantages, atol=1e-5)


def learner(observation="memory", **changes):
    torch.manual_seed(1)
    model = gpf.MLP(16 if observation == "memory" else 22, 16, 7, 2)
    PolicyGradientLearner.prepare(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    scenario = Scenario.of({"preset": "reference", "max_steps": 50}).rewarded("search", 0.99)
    made = Rollouts(8, 16, scenario, observation, 7, seed=2, threads=1)
    return PolicyGradientLearner(model, optimizer, made, Settings(**{"minibatch": 64, **changes}))


def loss_inputs(one, count=50):
    torch.manual_seed(3)
    inputs, actions = torch.randn(count, 16), torch.randint(0, 6, (count, 1))
    before = one.model(inputs)[:, :6].log_softmax(1).gather(1, actions)[:, 0].detach()
    return inputs, actions, before, torch.randn(count), torch.randn(count)


def test_at_first_the_gradient_is_the_policy_gradient():
    """Before the policy has moved: minus the mean of (normalised) advantage times the gradient of log pi."""
    one = learner(entropy=0.0, value_weight=0.0)
    inputs, actions, before, advantages, returns = loss_inputs(one)
    one._loss(inputs, actions, before, advantages, returns).backward()
    mine = [p.grad.clone() for p in one.model.layers.parameters()]
    one.model.zero_grad()
    normalised = (advantages - advantages.mean()) / advantages.std(correction=0)
    log_policy = one.model(inputs)[:, :6].log_softmax(1).gather(1, actions)[:, 0]
    (-(normalised * log_policy).mean()).backward()
    for gradient, parameter in zip(mine, one.model.layers.parameters(), strict=True):
        torch.testing.assert_close(gradient, parameter.grad, rtol=1e-4, atol=1e-7)


def test_what_has_moved_too_far_in_its_own_favour_pushes_no_more():
    """Ratio 1 + clip passed where the advantage is positive, 1 - clip where it is negative: no gradient from there."""
    one = learner(entropy=0.0, value_weight=0.0, clip=0.2)
    inputs, actions, before, _, returns = loss_inputs(one)
    advantages = torch.tensor([1.0, -1.0]).repeat(25)
    moved = before - torch.tensor([0.3, -0.3]).repeat(25)  # ratios of e^0.3 where good, e^-0.3 where bad
    one._loss(inputs, actions, moved, advantages, returns).backward()
    assert all(float(p.grad.abs().max()) < 1e-8 for p in one.model.layers.parameters())
    one.model.zero_grad()
    back = before + torch.tensor([0.3, -0.3]).repeat(25)  # moved the wrong way: it is pushed back
    one._loss(inputs, actions, back, advantages, returns).backward()
    assert any(float(p.grad.abs().max()) > 1e-6 for p in one.model.layers.parameters())


def plain_loss(outputs, actions, before, advantages, returns, settings, critic):
    """PPO's loss and its gradient at the outputs, sample by sample, in NumPy and by hand."""
    advantages = (advantages - advantages.mean()) / advantages.std()
    loss, gradient, count = 0.0, np.zeros_like(outputs), len(outputs)
    for n, (output, action) in enumerate(zip(outputs, actions, strict=True)):
        policy = np.exp(output[:6]) / np.exp(output[:6]).sum()
        ratio = policy[action] / np.exp(before[n])
        low, high = 1.0 - settings.clip, 1.0 + settings.clip
        loss -= min(ratio * advantages[n], np.clip(ratio, low, high) * advantages[n])
        if not (ratio > high and advantages[n] > 0) and not (ratio < low and advantages[n] < 0):
            gradient[n, :6] -= advantages[n] * ratio * (np.eye(6)[action] - policy)
        entropy = -(policy * np.log(policy)).sum()
        loss -= settings.entropy * entropy
        gradient[n, :6] += settings.entropy * policy * (np.log(policy) + entropy)
        if not critic:
            loss += settings.value_weight * (output[6] - returns[n]) ** 2
            gradient[n, 6] += 2.0 * settings.value_weight * (output[6] - returns[n])
    return loss / count, gradient / count


@pytest.mark.parametrize("critic", [False, True], ids=["shared", "critic"])
def test_the_loss_and_its_gradient_equal_those_by_hand(critic):
    """Of a policy that has moved, within and beyond the clip, with weights that let no term hide behind another."""
    one = learner(entropy=0.7, value_weight=0.3, clip=0.25)
    one.model, one.critic = torch.nn.Identity(), object() if critic else None
    rng = np.random.default_rng(0)
    count = 200
    outputs, advantages, returns = rng.normal(size=(count, 7)), rng.normal(size=count), rng.normal(size=count)
    actions = rng.integers(0, 6, count)
    taken = outputs[np.arange(count), actions] - np.log(np.exp(outputs[:, :6]).sum(1))
    before = taken + rng.normal(scale=0.5, size=count)
    wanted, gradient = plain_loss(outputs, actions, before, advantages, returns, one.settings, critic)
    given = torch.tensor(outputs, requires_grad=True)
    loss = one._loss(given, torch.tensor(actions)[:, None], *map(torch.tensor, (before, advantages, returns)))
    loss.backward()
    assert loss.item() == pytest.approx(wanted, abs=1e-6)
    np.testing.assert_allclose(given.grad, gradient, atol=1e-8)


def test_every_pass_learns_from_every_step_once():
    one = learner(update_epochs=3, minibatch=50)
    one.optimizer.register_step_pre_hook(lambda *_: None)  # torch takes the steps
    one.rollouts.collect(one.network)
    batches, loss = [], one._loss
    one._loss = lambda inputs, *rest: batches.append(inputs) or loss(inputs, *rest)
    one.learn()
    assert [len(batch) for batch in batches] == [50, 50, 28] * 3
    seen = one.rollouts.inputs[:-1].reshape(128, 16)
    for n in range(3):
        rows = torch.cat(batches[3 * n : 3 * n + 3]).numpy()
        np.testing.assert_array_equal(rows[np.lexsort(rows.T)], seen[np.lexsort(seen.T)])
    assert not torch.equal(batches[0], batches[3])  # in another order


@pytest.mark.parametrize("observation", ["memory", "onehot"])
def test_the_same_seed_gives_the_same_run_bit_for_bit(observation):
    runs = [learner(observation) for _ in range(2)]
    for one in runs:
        torch.manual_seed(9)
        for k in range(4):
            one.epoch(k / 4)
    for mine, theirs in zip(*(one.model.parameters() for one in runs), strict=True):
        assert torch.equal(mine, theirs)


def test_an_episode_that_runs_out_of_time_is_over():
    """Its last advantage is the last reward less the value, as where the source was found."""
    one = learner()
    r = one.rollouts
    for _ in range(4):
        r.collect(one.network)
    late = r.bootstraps.copy()
    wanted = (r.rewards - r.outputs[:-1, :, -1])[late]
    assert late.any()
    one.learn()
    np.testing.assert_allclose(one.advantages[late], wanted, atol=1e-6)


def with_critic():
    torch.manual_seed(1)
    model = gpf.MLP(22, 16, 6)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    scenario = Scenario.of({"preset": "reference", "max_steps": 20}).rewarded("search", 0.99)
    made = Rollouts(8, 16, scenario, "onehot", 6, seed=2, threads=1, privileged=True)
    return PolicyGradientLearner(model, optimizer, made, Settings(minibatch=64), Critic(38, 16, 1e-3, seed=4))


def test_a_critic_judges_by_memory_and_learns_the_returns():
    """Advantages are over the critic's values; the returns that it learns are the sums of both."""
    one = with_critic()
    r, s = one.rollouts, one.settings
    for _ in range(2):  # the second has episodes that ran out of time
        r.collect(one.network)
    values = one.critic.model(torch.from_numpy(r.privileged))[..., 0].detach().numpy()
    wanted = np.zeros_like(one.advantages)
    generalized_advantages(r.rewards, values, r.ends, s.discount, s.gae_lambda, wanted)
    lessons = []
    one.critic.learn = lambda features, returns: lessons.append((features, returns))
    one.learn()
    np.testing.assert_allclose(one.advantages, wanted, atol=1e-6)
    features, returns = (torch.cat(parts[:2]) for parts in zip(*lessons, strict=True))  # the first pass
    seen = {tuple(row.tolist()): total for row, total in zip(features, returns.tolist(), strict=True)}
    for row, total in zip(r.privileged[:-1].reshape(128, 38), (wanted + values[:-1]).reshape(128), strict=True):
        assert seen[tuple(row.tolist())] == pytest.approx(total, abs=1e-5)


def test_a_critic_takes_gradient_steps_of_the_squared_error():
    one, other = Critic(16, 16, 1e-2, seed=4), Critic(16, 16, 1e-2, seed=4)
    features, returns = torch.randn(50, 16), 50 * torch.randn(50)  # such errors have gradients that are clipped
    optimizer = torch.optim.Adam(other.model.parameters(), lr=1e-2, eps=1e-5)
    for _ in range(5):
        one.learn(features, returns)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(other.model(features)[:, 0], returns).backward()
        torch.nn.utils.clip_grad_norm_(other.model.parameters(), 5.0)
        optimizer.step()
    for mine, theirs in zip(one.model.parameters(), other.model.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs)


def test_the_policy_is_nearly_uniform_at_first_and_the_value_without_offset():
    torch.manual_seed(1)
    plain, model = gpf.MLP(16, 16, 7, 2), learner().model  # made with the same seed
    torch.testing.assert_close(model.head.weight[:6], 0.01 * plain.head.weight[:6])
    assert torch.equal(model.head.weight[6], plain.head.weight[6])
    assert not model.head.bias.any()
    policy = model(torch.randn(200, 16))[:, :6].softmax(1).detach()
    assert float((policy - 1 / 6).abs().max()) < 0.05


def test_the_learning_rates_of_policy_and_critic_fall_to_zero():
    one = with_critic()
    one.rollouts.collect = one.learn = lambda *_: None
    for progress in (0.0, 0.25, 1.0):
        one.epoch(progress)
        for optimizer in (one.optimizer, one.critic.optimizer):
            assert optimizer.param_groups[0]["lr"] == pytest.approx(2e-3 * (1 - progress))


def test_the_norm_of_the_gradient_is_clipped():
    """One step of plain gradient descent, with errors so large that it would otherwise go far."""
    moved = {}
    for clip in (0.0, 0.5):
        one = learner(update_epochs=1, minibatch=1000, gradient_clip=clip)
        one.optimizer = torch.optim.SGD(one.model.parameters(), lr=1.0)
        one.rollouts.collect(one.network)
        one.rollouts.rewards *= 1000.0
        before = one.network.values.copy()
        one.learn()
        moved[clip] = np.linalg.norm(one.network.values - before)
    assert moved[0.5] == pytest.approx(0.5, rel=1e-3)
    assert moved[0.0] > 5.0


def test_the_average_of_the_weights_acts_only_if_it_is_asked_for():
    one, plain = learner(ema=0.9), learner()
    seen = []
    for k in range(3):
        torch.manual_seed(k)
        one.epoch(k / 3)
        torch.manual_seed(k)
        plain.epoch(k / 3)
        seen.append(one.network.values.copy())
    assert plain.average is None
    np.testing.assert_array_equal(one.network.values, plain.network.values)  # averaging does not change learning
    np.testing.assert_allclose(one.average.values, np.mean(seen, axis=0), rtol=1e-4, atol=1e-6)
    with torch.no_grad():
        one.model.head.weight[0] = 0.0  # as an event does
    one.rebind()
    np.testing.assert_array_equal(one.average.values, one.network.values)


def test_others_walk_in_half_of_the_lanes_and_are_not_learnt_from():
    learnt = []
    for others in ([], [1], [2], [1, 2]):
        one = learner()
        torch.manual_seed(9)
        for seed in range(2):
            models = [gpf.MLP(16, 16, 7, 1) for _ in others]
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
