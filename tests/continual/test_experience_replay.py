"""Experience replay: what the reservoir holds, what imitating it adds to a step, and that it resumes."""

import pytest
import torch
from torch import nn

from gpf.continual.replay import Replay, clone_policy, clone_values

pytestmark = pytest.mark.usefixtures("one_torch_thread")


def made(capacity=50, batch=8, strength=0.5, clip=100.0, seed=0):
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model, optimizer, Replay(model, optimizer, (3, 2), clone_values, strength, clip, capacity, batch, seed)


def numbered(first, count):
    """Samples that say which they are."""
    numbers = torch.arange(first, first + count, dtype=torch.float32)[:, None]
    return numbers.expand(-1, 3), -numbers.expand(-1, 2)


def step(model, optimizer):
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()


def test_the_reservoir_holds_all_that_fits_and_inputs_stay_with_their_outputs():
    _, _, replay = made(capacity=50)
    replay.add(*numbered(0, 30))
    assert replay.stored == 30
    assert torch.equal(replay.inputs[:30, 0], torch.arange(30.0))
    replay.add(*numbered(30, 400))
    assert replay.stored == 50
    assert torch.equal(replay.inputs[:, :2], -replay.outputs)
    assert len(set(replay.inputs[:, 0].tolist())) == 50


def test_old_and_new_samples_are_stored_with_the_same_probability():
    _, _, replay = made(capacity=2000)
    for first in range(0, 20_000, 1000):
        replay.add(*numbered(first, 1000))
    quarters = torch.histc(replay.inputs[:, 0], 4, 0, 20_000)
    assert (quarters - 500).abs().max() < 5 * (2000 * 0.25 * 0.75) ** 0.5


def test_a_step_goes_down_the_cloning_loss_and_an_empty_reservoir_adds_nothing():
    model, optimizer, replay = made(capacity=1, batch=1)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    step(model, optimizer)
    assert all(torch.equal(before[name], p) for name, p in model.named_parameters())
    sample, then = torch.tensor([[1.0, -2.0, 0.5]]), torch.tensor([[0.3, 4.0]])
    replay.add(sample, then)
    gradient = 0.5 * (model(sample) - then).detach()[0]  # of strength / 2 outputs sum (now - then)^2
    step(model, optimizer)
    assert torch.allclose(before["bias"] - model.bias, 0.1 * gradient)
    assert torch.allclose(before["weight"] - model.weight, 0.1 * gradient[:, None] * sample)


def test_a_long_gradient_is_shortened_before_it_is_weighted():
    model, optimizer, replay = made(capacity=1, batch=1, clip=0.2)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    replay.add(torch.tensor([[1.0, -2.0, 0.5]]), torch.tensor([[30.0, 4.0]]))
    step(model, optimizer)
    moved = torch.cat([(before[name] - p).flatten() for name, p in model.named_parameters()])
    assert moved.norm().item() == pytest.approx(0.1 * 0.5 * 0.2, rel=1e-4)


def test_the_cloning_loss_of_a_policy_by_hand():
    then = torch.tensor([[0.0, 0.0, 1.0]])  # two actions, and the value
    now = torch.tensor([[3.0, 3.0, 3.0]])
    assert clone_policy(now, then).item() == pytest.approx(4.0)  # the same policy; the values differ by 2
    assert clone_policy(now, then, 0.05).item() == pytest.approx(0.2)
    now = torch.tensor([[torch.tensor(3.0).log(), 0.0, 1.0]])  # three quarters and one quarter
    divergence = 0.5 * torch.tensor(0.5 / 0.75).log() + 0.5 * torch.tensor(0.5 / 0.25).log()
    assert clone_policy(now, then).item() == pytest.approx(divergence.item())


def test_it_resumes_with_the_same_samples():
    ours, resumed = made(seed=0), made(seed=9)
    ours[2].add(*numbered(0, 300))
    step(*ours[:2])
    resumed[0].load_state_dict(ours[0].state_dict())
    resumed[2].restore({name: tensor.clone() for name, tensor in ours[2].state().items()})
    for model, optimizer, replay in (ours, resumed):
        replay.add(*numbered(300, 300))
        step(model, optimizer)
    assert all(torch.equal(a, b) for a, b in zip(ours[0].parameters(), resumed[0].parameters(), strict=True))
    assert torch.equal(ours[2].inputs, resumed[2].inputs)
