"""The fused gradient steps against torch's autograd and Adam, and against stable-baselines3's PPO."""

import copy

import gymnasium
import numpy as np
import pytest
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.buffers import RolloutBufferSamples
from stable_baselines3.common.logger import configure
from stable_baselines3.common.vec_env import DummyVecEnv

import gpf
from gpf.continual.methods import L2Init
from gpf.navigation.fused import Lesson
from gpf.navigation.policy_gradient import PolicyGradientLearner, Settings
from gpf.navigation.rollouts import Rollouts
from gpf.network import surgery
from gpf.network.compiled import replace_hooks
from gpf.plume import Scenario

pytestmark = pytest.mark.usefixtures("one_torch_thread")

COUNT = 300
"""Samples: several tiles, of which the last is not full."""


def attached(depth=2, width=20, masked=False, frozen=(), rules=None):
    """The same network twice; a third of the weights pruned, and some layers frozen, if asked for."""
    torch.manual_seed(1)
    model = gpf.MLP(16, width, 7, depth)
    nets = []
    for copied in (model, copy.deepcopy(model)):
        net = gpf.attach(
            copied, torch.optim.Adam(copied.parameters(), lr=2e-3, eps=1e-5, fused=True), rules=rules, steps=100
        )
        if masked:
            for layer in net.layers:
                weight = layer.weights[0]
                surgery.prune(
                    layer, weight, weight.parameter.abs() < weight.parameter.abs().quantile(0.33), net.optimizers
                )
        for layer in frozen:
            net.freeze(layer)
        nets.append(net)
    return nets


def learner(net, **changes):
    scenario = Scenario.of({"preset": "reference", "max_steps": 50}).rewarded("search", 0.99)
    rollouts = Rollouts(8, 16, scenario, "memory", 7, seed=2, threads=1)
    return PolicyGradientLearner(net.model, net.optimizer, rollouts, Settings(**{"minibatch": 120, **changes}))


def random_lesson(seed=0, moved=0.5):
    """Steps of a policy that has moved since, some of them within the clip and some beyond."""
    rng = np.random.default_rng(seed)
    return Lesson(
        rng.normal(size=(COUNT, 16)).astype(np.float32),
        (moved * rng.normal(size=(COUNT, 7))).astype(np.float32),
        rng.integers(0, 6, COUNT),
        rng.normal(1.0, 3.0, COUNT).astype(np.float32),
        rng.normal(size=COUNT).astype(np.float32),
    )


def learn_both_ways(nets, lesson, passes=2, **changes):
    """Take the same gradient steps fused and in torch."""
    order = torch.stack([torch.randperm(COUNT) for _ in range(passes)])
    fused, plain = (learner(net, **changes) for net in nets)
    replacements = fused._replacements()
    assert not isinstance(replacements, str), replacements
    fused._learn_fused(lesson, order, replacements)
    plain._learn_in_torch(lesson, order)


def assert_alike(nets, tolerance=2e-5):
    mine, theirs = nets
    for (name, p), q in zip(mine.model.named_parameters(), theirs.model.parameters(), strict=True):
        torch.testing.assert_close(p, q, atol=tolerance, rtol=1e-4, msg=lambda m, name=name: f"{name}: {m}")
        a, b = (net.optimizer.state.get(r, {}) for net, r in ((mine, p), (theirs, q)))
        assert a.keys() == b.keys()
        for key in a:
            torch.testing.assert_close(a[key], b[key], atol=tolerance, rtol=2e-3)


@pytest.mark.parametrize("masked", [False, True], ids=["dense", "pruned"])
@pytest.mark.parametrize(
    ("depth", "frozen"), [(1, ()), (3, ()), (3, (0,)), (3, (1,)), (3, (0, 1)), (2, (0, 1))]
)  # fmt: skip
def test_steps_equal_torchs_autograd_and_adam(depth, frozen, masked):
    nets = attached(depth, masked=masked, frozen=frozen)
    learn_both_ways(nets, random_lesson())
    assert_alike(nets)
    assert nets[0].schedule.step == nets[1].schedule.step == 6


@pytest.mark.parametrize(
    "changes",
    [
        {"entropy": 0.0, "value_weight": 0.0}, {"entropy": 0.5, "value_weight": 0.0}, {"value_weight": 0.7},
        {"clip": 0.05}, {"gradient_clip": 0.0}, {"gradient_clip": 0.01}, {"minibatch": 1000}, {"minibatch": 7},
    ],
    ids=lambda changes: " ".join(f"{name}={value}" for name, value in changes.items()),
)  # fmt: skip
def test_every_term_of_the_loss_equals_torchs(changes):
    nets = attached(width=33)
    learn_both_ways(nets, random_lesson(1), passes=1, **changes)
    assert_alike(nets)


def test_pruned_weights_and_their_moments_stay_zero():
    net, _ = attached(masked=True)
    one = learner(net)
    with torch.no_grad():
        net.layers[0].weights[0].parameter.add_(0.1)  # as a user might
    one._learn_fused(random_lesson(), torch.randperm(COUNT)[None], one._replacements())
    for layer in net.layers:
        weight = layer.weights[0]
        assert not weight.parameter[weight.pruned].any()
        assert not net.optimizer.state[weight.parameter]["exp_avg"][weight.pruned].any()


class Policy:
    """A network of ours as stable-baselines3's PPO sees its policy."""

    def __init__(self, net):
        self.model, self.optimizer = net.model, net.optimizer

    def evaluate_actions(self, inputs, actions):
        outputs = self.model(inputs)
        policy = torch.distributions.Categorical(logits=outputs[:, :6])
        return outputs[:, 6:], policy.log_prob(actions), policy.entropy()

    def set_training_mode(self, mode):
        self.model.train(mode)

    def parameters(self):
        return self.model.parameters()


class Buffer:
    """One batch, which is a whole rollout, as stable-baselines3's PPO gets it; advantages are normalised already."""

    def __init__(self, lesson):
        inputs, outputs, actions, advantages, returns = map(torch.from_numpy, vars(lesson).values())
        before = outputs[:, :6].log_softmax(1)[torch.arange(COUNT), actions]
        normal = (advantages - advantages.mean()) / advantages.std(correction=0)
        self.values, self.returns = outputs[:, 6].numpy(), lesson.returns
        self.batch = RolloutBufferSamples(inputs, actions[:, None].float(), outputs[:, 6], before, normal, returns)

    def get(self, batch_size):
        yield self.batch


class Nowhere(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-10, 10, (16,))
    action_space = gymnasium.spaces.Discrete(6)


@pytest.mark.parametrize(("entropy", "value_weight"), [(0.0, 0.0), (0.3, 0.0), (0.0, 0.4), (0.03, 0.4)])
def test_a_step_equals_that_of_stable_baselines3(entropy, value_weight):
    nets = attached()
    lesson = random_lesson(2)
    theirs = PPO(
        "MlpPolicy", DummyVecEnv([Nowhere]), n_steps=COUNT, batch_size=COUNT, n_epochs=1, learning_rate=2e-3,
        clip_range=0.2, ent_coef=entropy, vf_coef=value_weight, max_grad_norm=0.7, normalize_advantage=False,
        device="cpu",
    )  # fmt: skip
    theirs.policy, theirs.rollout_buffer = Policy(nets[1]), Buffer(lesson)
    theirs.set_logger(configure(None, []))
    theirs.train()
    one = learner(nets[0], entropy=entropy, value_weight=value_weight, gradient_clip=0.7, minibatch=COUNT)
    one._learn_fused(lesson, torch.arange(COUNT)[None], one._replacements())
    assert_alike(nets)


def with_rules(**rules):
    return attached(rules=gpf.Rules(**rules))[0]


def pruned(net):
    layer = net.layers[0]
    surgery.prune(layer, layer.weights[0], layer.weights[0].parameter < 0.0, net.optimizers)


REASONS = {
    "a method of continual learning": (lambda net: L2Init(net.model, net.optimizer), "the optimizer has a hook"),
    "a hook on a module": (lambda net: net.model.head.register_forward_hook(lambda *_: None), "a module has a hook"),
    "a hook on a parameter": (
        lambda net: net.model.head.bias.register_post_accumulate_grad_hook(lambda p: None), "a parameter has a hook"
    ),
    "a hook on a gradient": (lambda net: net.model.head.bias.register_hook(lambda g: g), "a parameter has a hook"),
    "weight decay": (
        lambda net: net.optimizer.param_groups[0].update(weight_decay=0.1),
        "Adam has amsgrad, weight decay or maximize",
    ),
    "something frozen by hand": (
        lambda net: net.model.head.requires_grad_(False),
        "the optimizer does not train exactly what requires gradients",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REASONS)
def test_torch_learns_where_something_rides_on_its_steps(case):
    """The reason is given, and what was done is what torch does."""
    nets = attached()
    change, reason = REASONS[case]
    for net in nets:
        change(net)
    assert replace_hooks(nets[0].model, nets[0].optimizer) == reason
    one, other = map(learner, nets)
    for each in (one, other):
        rng, rollouts = np.random.default_rng(3), each.rollouts
        for part in (rollouts.inputs, rollouts.outputs, rollouts.rewards):
            part[...] = rng.normal(size=part.shape)
    torch.manual_seed(5)
    one.learn()
    torch.manual_seed(5)
    other._replacements = lambda: reason
    other.learn()
    assert_alike(nets, 0.0)


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        ({"activation_threshold": 0.1}, "a module has a hook"),
        ({"prune_to": 0.5, "regrow": 0.1}, "gradients of pruned weights are gathered"),
        ({"saliency": "obd"}, None),  # Adam's second moment says it all
        ({}, None),
    ],
)
def test_rules_that_gather_by_hooks_are_served_by_torch(rules, reason):
    net = with_rules(**rules)
    pruned(net)
    replacements = replace_hooks(net.model, net.optimizer)
    assert replacements == reason if reason else list(replacements.masks) == [net.layers[0].weights[0].parameter]


def test_normalised_layers_and_other_optimizers_are_left_to_torch():
    model = gpf.MLP(16, 16, 7, 1, layer_norm=True)
    assert learner(gpf.attach(model, torch.optim.Adam(model.parameters())))._replacements() == "a layer is normalised"
    other = gpf.MLP(16, 16, 7, 1)
    net = gpf.attach(other, torch.optim.SGD(other.parameters(), lr=0.1))
    assert learner(net)._replacements() == "the optimizer is SGD, not Adam"


def test_fused_and_torch_steps_can_take_turns():
    """The optimizer's state and its number of steps are torch's, whichever way the last ones were taken."""
    nets = attached(masked=True)
    fused, plain = (learner(net) for net in nets)
    for turn in range(4):
        lesson, order = random_lesson(turn), torch.randperm(COUNT)[None]
        if turn % 2:
            fused._learn_in_torch(lesson, order)
        else:
            fused._learn_fused(lesson, order, fused._replacements())
        plain._learn_in_torch(lesson, order)
        for net in nets:
            net.optimizer.load_state_dict(copy.deepcopy(net.optimizer.state_dict()))  # other tensors than before
    assert_alike(nets, 1e-4)
