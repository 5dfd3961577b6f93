"""Learning in C is learning in Python: the same updates, and the same growths, prunings, freezes and thaws."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from learning_networks import (
    RULES,
    SETTINGS,
    PlainLearner,
    bits,
    learning_from,
    make_net,
    parameters,
    parameters_of,
    transitions,
)
from numba import njit

from gpf import Rules, attach
from gpf.edge.learners import FROZEN, GROWN, PRUNED, THAWED, Learners
from gpf.navigation.acting import expected
from gpf.navigation.flat import FlatNetwork
from gpf.navigation.online import adam, backward, forward_tokens, pruned_weights

STEPS, EPOCH = 1000, 20
METRICS = [0.1, 0.3, 0.5, *[0.5] * 30, *[0.1] * 3, *[0.4] * 14]
"""Of the epochs: a plateau, a drop, and another plateau."""


@pytest.mark.parametrize("saliency", ["magnitude", "obd"])
@pytest.mark.parametrize("more", [{}, {"drop": 0.5, "drop_window": 3, "belief_fall": 0.03}], ids=["", "drop"])
def test_a_thousand_updates_are_those_of_python_bit_by_bit(tmp_path, saliency, more):
    rules = {**RULES, **more, "saliency": saliency}
    rules["saliency_threshold"] = 0.2 if saliency == "magnitude" else 1e-3
    net, start = make_net(rules, torch.float64), make_net(rules)
    net.model.load_state_dict(start.model.state_dict())
    c = Learners(tmp_path, learning_from(start), [0], "double")
    python, happened = PlainLearner(net, SETTINGS), []
    for n, transition in enumerate(transitions(STEPS)):
        python.update(*transition)
        c.update(*transition)
        if n % EPOCH == EPOCH - 1:
            events = net.end_epoch(METRICS[n // EPOCH])
            assert c.end_epoch(METRICS[n // EPOCH]) == bits(events)
            happened.append(bits(events))
            assert int(c.memory[0]["depth"]) == net.depth
            found, wanted = parameters_of(c.memory[0], net), parameters(net)
            for name in wanted:
                np.testing.assert_array_equal(found[name], wanted[name], err_msg=f"{name} after update {n}")
    expected = {GROWN, PRUNED, FROZEN} | ({THAWED} if more else set())
    assert all(any(one & kind for one in happened) for kind in expected)
    assert 0.0 < net.density < 1.0


@njit
def fused_update(
    layers, values, first, second, keep, gradient, activations, deltas, inputs, action, reward, following, exploration,
    rate, discount, clip,
):  # fmt: skip
    """An update as in an episode of the online learner, in the functions that it is made of."""
    tokens, count = np.zeros(3, np.int64), len(layers)
    activations[0, : len(inputs)] = inputs
    forward_tokens(layers, values, False, tokens, activations)
    target = float(reward)
    if len(following):
        deltas[0, : len(inputs)] = following
        forward_tokens(layers, values, False, tokens, deltas)
        target += discount * expected(deltas[count], exploration)
    error = np.float32(activations[count, action] - target)
    backward(layers, values, activations, deltas, action, np.float32(2.0) * error)
    adam(
        layers, values, first, second, keep, False, tokens, activations, deltas, gradient, rate, 0.9, 0.999, 1e-8, clip
    )


class FusedLearner:
    """The compiled online learner, fed with transitions."""

    def __init__(self, net):
        self.net = net
        self.rebind()

    def rebind(self):
        self.network = FlatNetwork(self.net.model, self.net.optimizer)
        self.network.mask(pruned_weights(self.net))
        self.work = np.zeros_like(self.network.values), *self.network.activations(2)

    def update(self, inputs, action, reward, following):
        n, s = self.network, SETTINGS
        after = np.zeros(0, np.float32) if following is None else following
        fused_update(
            n.layers, n.values, n.first, n.second, n.keep, *self.work, inputs, action, reward, after, s["exploration"],
            s["learning_rate"], s["discount"], s["gradient_clip"],
        )  # fmt: skip
        n.write_steps()


def test_a_thousand_updates_in_float32_are_those_of_the_online_learner_to_rounding(tmp_path):
    net, start = make_net(RULES), make_net(RULES)
    c, python, seen = Learners(tmp_path, learning_from(start), [0]), FusedLearner(net), 0
    for n, transition in enumerate(transitions(STEPS)):
        python.update(*transition)
        c.update(*transition)
        if n % EPOCH == EPOCH - 1:
            events = net.end_epoch(METRICS[n // EPOCH])
            assert c.end_epoch(METRICS[n // EPOCH]) == bits(events)
            if events:
                python.rebind()
            seen |= bits(events)
            found, wanted = parameters_of(c.memory[0], net), parameters(net)
            np.testing.assert_allclose(found["values"], wanted["values"], atol=2e-4)
            np.testing.assert_allclose(found["first"], wanted["first"], atol=2e-4)
            np.testing.assert_allclose(found["belief"], wanted["belief"], atol=1e-6)
    assert seen == GROWN | PRUNED | FROZEN


@pytest.fixture(scope="module")
def changing(tmp_path_factory):
    """Rules by which much happens in few epochs, and learners that go by them."""
    rules = {**RULES, "drop": 0.6, "drop_window": 2, "max_depth": 4, "freeze_patience": 2, "freeze_delta": 0.05}
    return rules, Learners(tmp_path_factory.mktemp("learner"), learning_from(make_net(rules)), [0], "double")


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from([0.0, 0.1, 0.2, 0.5, 0.505, 0.9, 1.0]), min_size=5, max_size=30))
def test_whatever_the_metric_what_happens_in_c_happens_in_python(changing, metrics):
    rules, c = changing
    net, start = make_net(rules, torch.float64), make_net(rules)
    net.model.load_state_dict(start.model.state_dict())
    c.begin([0])
    python, more = PlainLearner(net, SETTINGS), iter(transitions(2 * len(metrics)))
    for metric in metrics:
        for _ in range(2):
            transition = next(more)
            python.update(*transition)
            c.update(*transition)
        assert c.end_epoch(metric) == bits(net.end_epoch(metric))
        assert tuple(np.flatnonzero(c.memory[0]["layers"]["frozen"])) == net.frozen
    found, wanted = parameters_of(c.memory[0], net), parameters(net)
    np.testing.assert_array_equal(found["values"], wanted["values"])


@pytest.mark.parametrize("mode", ["min", "max"])
def test_a_pruned_and_frozen_network_learns_as_it_does_in_python(tmp_path, mode):
    rules = {**RULES, "mode": mode, "grow_patience": None, "freeze_patience": None}
    net, start = (make_net(rules, real, 2, 0.4) for real in (torch.float64, torch.float32))
    net.model.load_state_dict(start.model.state_dict())
    for one in (net, start):
        one.freeze(0)
    c = Learners(tmp_path, learning_from(start), [0], "double")
    python = PlainLearner(net, SETTINGS)
    for transition in transitions(60):
        python.update(*transition)
        c.update(*transition)
    found, wanted = parameters_of(c.memory[0], net), parameters(net)
    np.testing.assert_array_equal(found["values"], wanted["values"])
    hidden = start.model.layers[0].linear.weight.detach().numpy()
    np.testing.assert_array_equal(found["values"][: hidden.size], hidden.T.ravel())


def test_q_learning_without_clipping_takes_the_best_next_action(tmp_path):
    net = make_net({**RULES, "grow_patience": None})
    plain = {**SETTINGS, "exploration": 0.0, "gradient_clip": float("inf")}
    c = Learners(tmp_path, learning_from(net, q_learning=True, gradient_clip=0.0, exploration=0.9), [0], "double")
    model = copy.deepcopy(net.model).double()
    other = gpf_attached(model)
    python = PlainLearner(other, plain)
    for transition in transitions(40):
        python.update(*transition)
        c.update(*transition)
    np.testing.assert_array_equal(parameters_of(c.memory[0], other)["values"], parameters(other)["values"])


def gpf_attached(model):
    return attach(model, torch.optim.Adam(model.parameters(), lr=SETTINGS["learning_rate"]), rules=Rules.fixed())
