"""Recurrences over whole sequences with their gradients: a minimal GRU by one scan, and a GRU step by step.

A minimal GRU (Feng et al. 2024) moves its state towards a candidate, h_t = h_{t-1} + z_t (c_t - h_{t-1}), where gate z
and candidate c depend on the input alone. All matrix products of a sequence are then one, and what is left is a scan
that is linear in the state: a few operations per unit and step, compiled, forward and backward.

Shapes: T steps, n sequences, H units. `starts` marks steps before which the state is set to zero: first steps of
episodes. `state` is what is remembered before the first step.
"""

from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor
from torch.autograd import Function

from gpf.plume.kernels import lean_kernel

FAST = {"reassoc", "contract", "nsz"}
"""Freedoms that let loops vectorise."""


def minimal_gru(gates: Tensor, candidates: Tensor, starts: Tensor, state: Tensor) -> Tensor:
    """States after each step, (T, n, H), of gates before the sigmoid and candidates of the same shape.

    Args:
        gates: Float (T, n, H).
        candidates: Float (T, n, H).
        starts: Bool (T, n).
        state: Float (n, H).
    """
    states: Tensor = _MinimalGRU.apply(gates, candidates, starts, state)
    return states


def gru(inputs: Tensor, weight: Tensor, bias: Tensor, starts: Tensor, state: Tensor) -> Tensor:
    """States after each step, (T, n, H), of torch's GRU.

    Args:
        inputs: Input terms of the reset gate, the update gate and the candidate, (T, n, 3 H).
        weight: The map of the state to the same three, (3 H, H).
        bias: Its bias, (3 H,).
        starts: Bool (T, n).
        state: Float (n, H).
    """
    states: Tensor = _GRU.apply(inputs, weight, bias, starts, state)
    return states


class _MinimalGRU(Function):
    @staticmethod
    def forward(ctx: Any, gates: Tensor, candidates: Tensor, starts: Tensor, state: Tensor) -> Tensor:
        update = gates.detach().sigmoid()
        candidates = candidates.detach().contiguous()
        states = torch.empty_like(update)
        _scan(*_arrays(update, candidates, starts, state, states))
        ctx.save_for_backward(update, candidates, starts, state, states)
        return states

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, Tensor]:
        update, candidates, starts, state, states = ctx.saved_tensors
        into_gates, into_candidates = torch.empty_like(update), torch.empty_like(update)
        carry = torch.zeros_like(state)
        _scan_back(
            *_arrays(update, candidates, starts, state, states, gradients[0], into_gates, into_candidates, carry)
        )
        return into_gates, into_candidates, None, carry


class _GRU(Function):
    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor, starts: Tensor, state: Tensor) -> Tensor:
        steps, count, three = inputs.shape
        inputs = inputs.detach().contiguous()
        parts = inputs.new_empty(steps, 4, count, three // 3)  # reset, update, candidate, and the state's share of it
        states = inputs.new_empty(steps, count, three // 3)
        before = states.new_empty(steps, count, three // 3)
        spoken = inputs.new_empty(count, three)
        given = [one.numpy() for one in (inputs, parts, spoken, states)]
        for t in range(steps):
            before[t].copy_(state if t == 0 else states[t - 1]).masked_fill_(starts[t, :, None], 0.0)
            torch.addmm(bias, before[t], weight.T, out=spoken)
            _gru_step(given[0][t], given[2], before[t].numpy(), given[1][t], given[3][t])
        ctx.save_for_backward(parts, before, weight, starts)
        return states

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None, Tensor]:
        parts, before, weight, starts = ctx.saved_tensors
        steps, count, units = before.shape
        into_inputs, into_spoken = parts.new_empty(steps, count, 3 * units), parts.new_empty(steps, count, 3 * units)
        carry, through = parts.new_zeros(count, units), parts.new_empty(count, units)
        arriving = gradients[0].contiguous().numpy()
        arrays = [one.numpy() for one in (parts, before, into_inputs, into_spoken)]
        for t in range(steps - 1, -1, -1):
            _gru_step_back(*(one[t] for one in arrays), arriving[t], carry.numpy(), through.numpy())
            torch.addmm(through, into_spoken[t], weight, out=carry)
            carry.masked_fill_(starts[t, :, None], 0.0)
        rows = into_spoken.flatten(0, 1)
        return into_inputs, rows.T @ before.flatten(0, 1), rows.sum(0), None, carry


def _arrays(*tensors: Tensor) -> list[Any]:
    return [one.detach().contiguous().numpy() for one in tensors]


@lean_kernel
def _scan(update, candidates, starts, state, states):
    for t in range(len(update)):
        for i in range(update.shape[1]):
            _advance(
                update[t, i], candidates[t, i], state[i] if t == 0 else states[t - 1, i], starts[t, i], states[t, i]
            )


@njit(error_model="numpy", fastmath=FAST)
def _advance(update, candidates, before, start, after):
    for k in range(len(update)):
        held = before[k] * (1 - start)
        after[k] = held + update[k] * (candidates[k] - held)


@lean_kernel
def _scan_back(update, candidates, starts, state, states, arriving, into_gates, into_candidates, carry):
    for t in range(len(update) - 1, -1, -1):
        for i in range(update.shape[1]):
            before = state[i] if t == 0 else states[t - 1, i]
            _retreat(
                update[t, i], candidates[t, i], before, starts[t, i], arriving[t, i], into_gates[t, i],
                into_candidates[t, i], carry[i],
            )  # fmt: skip


@njit(error_model="numpy", fastmath=FAST)
def _retreat(update, candidates, before, start, arriving, into_gates, into_candidates, carry):
    for k in range(len(update)):
        z = update[k]
        total = arriving[k] + carry[k]
        into_candidates[k] = total * z
        into_gates[k] = total * (candidates[k] - before[k] * (1 - start)) * z * (1 - z)
        carry[k] = total * (1 - z) * (1 - start)


@lean_kernel
def _gru_step(inputs, spoken, before, parts, after):
    for i in range(len(before)):
        units = before.shape[1]
        for k in range(units):
            r = 1 / (1 + np.exp(-(inputs[i, k] + spoken[i, k])))
            z = 1 / (1 + np.exp(-(inputs[i, units + k] + spoken[i, units + k])))
            said = spoken[i, 2 * units + k]
            c = np.tanh(inputs[i, 2 * units + k] + r * said)
            parts[0, i, k], parts[1, i, k], parts[2, i, k], parts[3, i, k] = r, z, c, said
            after[i, k] = c + z * (before[i, k] - c)


@lean_kernel
def _gru_step_back(parts, before, into_inputs, into_spoken, arriving, carry, through):
    for i in range(len(before)):
        units = before.shape[1]
        for k in range(units):
            r, z, c, said = parts[0, i, k], parts[1, i, k], parts[2, i, k], parts[3, i, k]
            total = arriving[i, k] + carry[i, k]
            inner = total * (1 - z) * (1 - c * c)
            into_inputs[i, 2 * units + k] = inner
            into_spoken[i, 2 * units + k] = inner * r
            into_inputs[i, k] = into_spoken[i, k] = inner * said * r * (1 - r)
            into_inputs[i, units + k] = into_spoken[i, units + k] = total * (before[i, k] - c) * z * (1 - z)
            through[i, k] = total * z
