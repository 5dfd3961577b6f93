"""Each method against a step worked by hand, and against an optimizer that begins anew."""

import copy

import pytest
import torch
from torch import nn

import gpf
from gpf.continual.methods import ContinualBackprop, L2Init, OnlineEWC, ShrinkAndPerturb, linear_layers

pytestmark = pytest.mark.usefixtures("one_torch_thread")


def single(value, rate=0.1):
    """One weight, and an optimizer that subtracts rate times its gradient."""
    model = nn.Module()
    model.w = nn.Parameter(torch.tensor([value]))
    return model, torch.optim.SGD(model.parameters(), lr=rate)


def step(model, optimizer, gradient):
    model.w.grad = torch.tensor([gradient])
    optimizer.step()
    return model.w.item()


def test_the_pull_towards_the_start_by_hand():
    model, optimizer = single(1.0)
    L2Init(model, optimizer, strength=0.5)
    assert step(model, optimizer, -10.0) == pytest.approx(2.0)  # there is no pull at the start
    assert step(model, optimizer, 0.0) == pytest.approx(2.0 - 0.1 * 0.5 * (2.0 - 1.0))


def test_shrinking_by_hand_and_noise_of_the_size_asked_for():
    model, optimizer = single(2.0)
    ShrinkAndPerturb(model, optimizer, shrink=0.25, noise=0.0)
    assert step(model, optimizer, 5.0) == pytest.approx(0.75 * (2.0 - 0.1 * 5.0))
    model = nn.Linear(100, 100)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    before = model.weight.detach().clone()
    ShrinkAndPerturb(model, optimizer, shrink=0.0, noise=0.01)
    model(torch.zeros(1, 100)).sum().backward()
    optimizer.step()
    assert (model.weight - before).std().item() == pytest.approx(0.01, rel=0.05)


def test_elastic_weights_by_hand():
    model, optimizer = single(0.0)
    ewc = OnlineEWC(model, optimizer, strength=2.0, keep=0.5, every=2)
    assert step(model, optimizer, 3.0) == pytest.approx(-0.3)
    assert step(model, optimizer, 1.0) == pytest.approx(-0.4)  # still no importance; now the anchor is set here
    assert ewc.importance["w"].item() == pytest.approx((9.0 + 1.0) / 2)
    assert step(model, optimizer, 10.0) == pytest.approx(-1.4)  # at the anchor nothing pulls
    pulled = 2.0 * 5.0 * (-1.4 + 0.4)
    assert step(model, optimizer, 4.0) == pytest.approx(-1.4 - 0.1 * (4.0 + pulled))
    assert ewc.importance["w"].item() == pytest.approx(0.5 * 5.0 + (100.0 + 16.0) / 2)  # the loss's gradients alone


def two_layers():
    torch.manual_seed(0)
    model = gpf.MLP(2, 3, 1)
    with torch.no_grad():
        model.layers[0].linear.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
        model.head.weight.copy_(torch.tensor([[2.0, -0.5, 1.0]]))
    return model


def test_the_least_useful_unit_begins_anew_by_hand():
    model = two_layers()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    cbp = ContinualBackprop(model, optimizer, linear_layers(model), rate=0.4, maturity=1)
    x = torch.tensor([[1.0, 2.0], [3.0, 0.0]])
    activity = torch.tensor([2.0, 1.0, 3.0])  # mean of (1, 3), (2, 0), (3, 3)
    worth = activity * torch.tensor([2.0, 0.5, 1.0])
    model(x).sum().backward()
    optimizer.step()
    assert torch.allclose(cbp.utility[0], 0.01 * worth)
    assert cbp.due[0] == 0.0  # nobody is mature yet
    model(x).sum().backward()
    optimizer.step()  # three mature units at 0.4: one is due, and 0.2 of the next
    assert cbp.due[0].item() == pytest.approx(0.2)
    assert model.head.weight[0].tolist() == [2.0, 0.0, 1.0]  # unit 1, worth 0.5
    assert model.layers[0].linear.weight[0].tolist() == [1.0, 0.0]
    assert model.layers[0].linear.weight[1].tolist() != [0.0, 1.0]
    assert cbp.age[0].tolist() == [2.0, 0.0, 2.0]
    assert cbp.utility[0][1] == 0.0


def replaced(utility, age, due, maturity=3):
    """Which of three units a step replaces, without anything to learn."""
    model = two_layers()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    cbp = ContinualBackprop(model, optimizer, linear_layers(model), rate=0.0, maturity=maturity)
    cbp.utility[0].copy_(torch.tensor(utility))
    cbp.age[0].copy_(torch.tensor(age))
    cbp.due[0] = due
    with torch.no_grad():
        model.layers[0].linear.bias.fill_(1.0)
    model(torch.zeros(1, 2)).sum().backward()
    cbp._activity[0] = torch.zeros(3)  # what counts is what has been gathered
    optimizer.step()
    anew = (cbp.age[0] == 0.0).tolist()
    assert (model.layers[0].linear.bias == 0.0).tolist() == anew
    assert cbp.due[0] == due - sum(anew)
    return anew


def test_utilities_count_by_age_and_young_units_are_spared():
    """A running mean over few steps is smaller than one over many; both are taken for what they will become."""
    ages = [9.0, 4.0, 2.0]  # before the step; the last one is not mature after it either
    assert replaced([0.05, 0.04, 0.0], ages, due=1.0) == [True, False, False]  # 0.05 / 0.1 is less than 0.04 / 0.05
    assert replaced([0.1, 0.04, 0.0], ages, due=1.0) == [False, True, False]
    assert replaced([0.1, 0.04, 0.0], ages, due=3.0) == [True, True, False]
    assert replaced([0.1, 0.04, 0.0], ages, due=0.9) == [False, False, False]


def test_only_what_is_learned_from_counts_as_activity():
    model = gpf.MLP(4, 6, 2)
    cbp = ContinualBackprop(model, torch.optim.Adam(model.parameters()), linear_layers(model))
    model(torch.ones(2, 4))
    seen = cbp._activity[0].clone()
    with torch.no_grad():
        model(torch.full((2, 4), 9.0))
    assert torch.equal(cbp._activity[0], seen)


def test_a_unit_is_no_longer_new_when_its_count_makes_no_difference():
    model = two_layers()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, betas=(0.9, 0.9))
    cbp = ContinualBackprop(model, optimizer, linear_layers(model), rate=1.0 / 3.0, maturity=0)

    def train():
        optimizer.zero_grad()
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()

    train()
    cbp.rate = 0.0
    assert cbp.young.keys() == {"layers.0.linear.weight", "layers.0.linear.bias", "head.weight"}
    for _ in range(100):  # ten times 1 / (1 - 0.9)
        assert cbp.young
        train()
    assert not cbp.young


@pytest.mark.parametrize("eps", [1e-8, 1e-2])
def test_new_units_learn_as_with_an_optimizer_of_their_own(eps):
    """Adam's moments, step counts and eps: after a replacement, new weights move as if Adam had just begun."""
    torch.manual_seed(1)
    model = gpf.MLP(4, 6, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, eps=eps)
    cbp = ContinualBackprop(model, optimizer, linear_layers(model), rate=0.0, maturity=1)
    x, y = torch.randn(32, 4), torch.randn(32, 2)

    def train():
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    for _ in range(50):
        train()
    cbp.rate = 1.0 / 6.0
    train()
    cbp.rate = 0.0
    (unit,) = torch.nonzero(cbp.age[0] == 0.0)[0].tolist()

    def new():
        return torch.cat([model.layers[0].linear.weight[unit], model.head.weight[:, unit]]).detach().clone()

    def gradients():
        return torch.cat([model.layers[0].linear.weight.grad[unit], model.head.weight.grad[:, unit]]).clone()

    expected, mean, square = new(), 0.0, 0.0
    for step in range(1, 6):
        train()
        mean, square = 0.9 * mean + 0.1 * gradients(), 0.999 * square + 0.001 * gradients() ** 2
        expected -= 0.01 * (mean / (1 - 0.9**step)) / ((square / (1 - 0.999**step)).sqrt() + eps)
        torch.testing.assert_close(new(), expected, rtol=1e-4, atol=1e-6)
    others = [n for n in range(6) if n != unit]
    assert not cbp.young["head.weight"][:, others].any()


def test_a_copy_of_the_model_does_not_report_to_the_method():
    model = gpf.MLP(4, 6, 2)
    optimizer = torch.optim.Adam(model.parameters())
    cbp = ContinualBackprop(model, optimizer, linear_layers(model))
    model(torch.ones(2, 4))
    seen = cbp._activity[0].clone()
    copy.deepcopy(model)(torch.full((2, 4), 9.0))
    assert torch.equal(cbp._activity[0], seen)


@pytest.mark.parametrize("make", [L2Init, ShrinkAndPerturb, OnlineEWC, "cbp"])
def test_a_method_goes_on_from_its_state_and_lets_go(make):
    def begin():
        torch.manual_seed(2)
        model = gpf.MLP(3, 8, 2)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        if make == "cbp":
            return model, optimizer, ContinualBackprop(model, optimizer, linear_layers(model), 0.02, 3)
        return model, optimizer, make(model, optimizer, **({"every": 4} if make is OnlineEWC else {}))

    x, y = torch.randn(16, 3), torch.randn(16, 2)

    def train(model, optimizer, steps):
        for _ in range(steps):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()

    model, optimizer, method = begin()
    train(model, optimizer, 10)
    other, its_optimizer, its_method = begin()
    other.load_state_dict(model.state_dict())
    its_optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    its_method.restore({name: tensor.clone() for name, tensor in method.state().items()})
    train(model, optimizer, 10)
    train(other, its_optimizer, 10)
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)
    method.close()
    plain = copy.deepcopy(model)
    adam = torch.optim.Adam(plain.parameters(), lr=0.01)
    adam.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    train(model, optimizer, 3)
    train(plain, adam, 3)
    for a, b in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.equal(a, b)
