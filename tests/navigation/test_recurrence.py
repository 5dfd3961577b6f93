"""Recurrences over sequences against plain loops in torch, and torch's own GRU."""

import pytest
import torch
from torch import nn

from gpf.navigation.recurrence import gru, minimal_gru

pytestmark = pytest.mark.usefixtures("one_torch_thread")


def plain_minimal_gru(gates, candidates, starts, state):
    made = []
    for gate, candidate, start in zip(gates, candidates, starts, strict=True):
        update = gate.sigmoid()
        state = (1 - update) * torch.where(start[:, None], 0.0, state) + update * candidate
        made.append(state)
    return torch.stack(made)


def plain_gru(inputs, weight, bias, starts, state):
    """By torch's cell, of which the map of the input is the identity."""
    units = state.shape[1]
    cell = nn.GRUCell(3 * units, units, dtype=state.dtype)
    made = []
    for given, start in zip(inputs, starts, strict=True):
        parts = {"weight_ih": torch.eye(3 * units, dtype=state.dtype), "bias_ih": torch.zeros_like(bias)}
        parts |= {"weight_hh": weight, "bias_hh": bias}
        before = torch.where(start[:, None], 0.0, state)
        state = torch.func.functional_call(cell, parts, (given, before))
        made.append(state)
    return torch.stack(made)


def case(kind, steps=7, count=3, units=4, dtype=torch.float64, seed=0):
    torch.manual_seed(seed)
    starts = torch.rand(steps, count) < 0.3
    starts[0, 0] = True
    state = torch.randn(count, units, dtype=dtype)
    if kind == "gru":
        shapes = (steps, count, 3 * units), (3 * units, units), (3 * units,)
    else:
        shapes = (steps, count, units), (steps, count, units)
    tensors = [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]
    return [*tensors, starts, state.requires_grad_()]


PAIRS = {"mingru": (minimal_gru, plain_minimal_gru), "gru": (gru, plain_gru)}


@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.parametrize("seed", range(3))
def test_states_and_gradients_equal_those_of_a_plain_loop(kind, seed):
    fast, plain = PAIRS[kind]
    mine, theirs = case(kind, seed=seed), case(kind, seed=seed)
    made, wanted = fast(*mine), plain(*theirs)
    torch.testing.assert_close(made, wanted)
    weights = torch.randn(made.shape, dtype=made.dtype)
    (made * weights).sum().backward()
    (wanted * weights).sum().backward()
    for one, other in zip(mine, theirs, strict=True):
        if one.requires_grad:
            torch.testing.assert_close(one.grad, other.grad)


@pytest.mark.parametrize("kind", PAIRS)
def test_gradients_are_those_of_finite_differences(kind):
    inputs = case(kind, steps=4, count=2, units=2)
    assert torch.autograd.gradcheck(PAIRS[kind][0], inputs)


@pytest.mark.parametrize("kind", PAIRS)
def test_a_sequence_in_two_parts_is_the_whole_one(kind):
    """The state after the first part is what the second begins with; gradients of what follows flow through it."""
    tensors = [one.detach() for one in case(kind, steps=9, dtype=torch.float32)]
    sequences = 1 if kind == "gru" else 2  # tensors with steps; others are the same at every step
    fast = PAIRS[kind][0]

    def part(rows, state):
        return fast(*(one[rows] for one in tensors[:sequences]), *tensors[sequences:-2], tensors[-2][rows], state)

    whole = fast(*tensors)
    first = part(slice(0, 5), tensors[-1])
    torch.testing.assert_close(torch.cat([first, part(slice(5, 9), first[-1])]), whole)


@pytest.mark.parametrize("kind", PAIRS)
def test_nothing_from_before_a_start_matters_after_it(kind):
    tensors = case(kind, steps=6)
    tensors[-2][:] = False
    tensors[-2][3] = True
    made = PAIRS[kind][0](*tensors)
    made[3:].sum().backward()
    assert not tensors[-1].grad.any()
    assert not tensors[0].grad[:3].any()
    assert tensors[0].grad[3:].all()
