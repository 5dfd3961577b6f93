"""The exported policy as a torch module: the source of the ONNX graph, and the reference of tests for C."""

import torch
from torch import Tensor, nn

from gpf.edge.policy import Policy
from gpf.plume.memory import LONG_AGO, SIDE_SMOOTHING, WIND_SMOOTHING
from gpf.plume.scenario import LEVELS, OCTANTS

STATE = ("x", "y", "wind_x", "wind_y", "since", "side", "met", "left", "right", "age")
"""Memory of a lane, in the order of the state's columns; age -1 begins an episode."""


def blank_state(lanes: int) -> Tensor:
    """The state before the first observation of an episode, shape (lanes, 10)."""
    state = torch.zeros(lanes, len(STATE))
    state[:, -1] = -1.0
    return state


class Remembering(nn.Module):
    """The features of memory, as `gpf.plume.memory.remember` computes them, with the state going in and out."""

    whiff: Tensor

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.stride: float = policy.stride
        self.max_steps: float = policy.max_steps
        self.register_buffer("whiff", floor32([policy.whiff]))

    def forward(self, sensors: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Features, shape (n, 16), and the next state, of sensors (n, 5) and a state (n, 10)."""
        left, right, _, direction, heading = sensors.unbind(1)
        from_x, from_y = -direction.cos(), -direction.sin()
        x, y, wind_x, wind_y, since, side, met, far_left, far_right, age = self._moved(state, heading, from_x, from_y)
        wind_x = wind_x + WIND_SMOOTHING * (from_x - wind_x)
        wind_y = wind_y + WIND_SMOOTHING * (from_y - wind_y)
        whiff = torch.maximum(left, right) > self.whiff
        nothing, one = torch.zeros_like(left), torch.ones_like(left)
        x, y, since, far_left, far_right = (
            torch.where(whiff, nothing, value) for value in (x, y, since + 1.0, far_left, far_right)
        )
        met = torch.where(whiff, one, met)
        side = torch.where(whiff, side + SIDE_SMOOTHING * (torch.where(left > right, one, -one) - side), side)
        length = (wind_x * wind_x + wind_y * wind_y).sqrt()
        calm, safe = length <= 0.0, torch.where(length > 0.0, length, one)
        c, s = torch.where(calm, one, wind_x / safe), torch.where(calm, nothing, wind_y / safe)
        ch, sh = heading.cos(), heading.sin()
        across = y * c - x * s
        far_left, far_right = torch.maximum(far_left, across), torch.maximum(far_right, -across)
        features = (
            (left - right) / (left + right + 3e-3),
            torch.where(whiff, one, nothing),
            *((-since / steps).exp() for steps in (10.0, 50.0, 200.0)),
            side,
            across / 3.0,
            (x * c + y * s) / 3.0,
            from_x * ch + from_y * sh,
            from_y * ch - from_x * sh,
            c * ch + s * sh,
            s * ch - c * sh,
            met,
            age / self.max_steps,
            far_left / 3.0,
            far_right / 3.0,
        )
        following = (x, y, wind_x, wind_y, since, side, met, far_left, far_right, age)
        return torch.stack(features, 1), torch.stack(following, 1)

    def _moved(self, state: Tensor, heading: Tensor, from_x: Tensor, from_y: Tensor) -> tuple[Tensor, ...]:
        """The state after the last step's way, or that of the first step."""
        x, y, wind_x, wind_y, since, side, met, left, right, age = state.unbind(1)
        first, nothing = age < 0.0, torch.zeros_like(age)
        x = torch.where(first, nothing, x + self.stride * heading.cos())
        y = torch.where(first, nothing, y + self.stride * heading.sin())
        wind_x, wind_y = torch.where(first, from_x, wind_x), torch.where(first, from_y, wind_y)
        since = torch.where(first, torch.full_like(age, LONG_AGO), since)
        side, met, left, right = (torch.where(first, nothing, one) for one in (side, met, left, right))
        return x, y, wind_x, wind_y, since, side, met, left, right, torch.where(first, nothing, age + 1.0)


class Tokenizing(nn.Module):
    """The paper's 22 inputs, as `gpf.plume.tokens` computes them."""

    edges: Tensor
    calm: Tensor

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.sign: float = policy.octant_sign
        self.offset: float = policy.octant_offset
        self.register_buffer("edges", floor32(policy.level_edges))
        self.register_buffer("calm", -floor32([-policy.calm_speed]))

    def forward(self, sensors: Tensor) -> Tensor:
        """Inputs, shape (n, 22), of sensors (n, 5)."""
        levels = (sensors[:, :2, None] > self.edges).sum(2)
        wide = sensors[:, 3:].double()  # as the world's tokenizer: a border may be met exactly
        turns = (self.sign * (wide[:, 0] + torch.pi - wide[:, 1]) + self.offset) / (2.0 * torch.pi)
        octants = ((turns - turns.floor()) * OCTANTS).long() % OCTANTS
        octants = torch.where(sensors[:, 2] < self.calm, torch.zeros_like(octants), octants)
        tokens = (levels[:, 0], levels[:, 1], octants)
        hot = (
            token[:, None] == torch.arange(size) for token, size in zip(tokens, (LEVELS, LEVELS, OCTANTS), strict=True)
        )
        return torch.cat(tuple(hot), 1).to(sensors.dtype)


class Network(nn.Module):
    """The layers one after the other."""

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        parts: list[nn.Module] = []
        for layer in policy.layers:
            linear = nn.utils.skip_init(nn.Linear, layer.inputs, layer.outputs)
            linear.weight.data, linear.bias.data = torch.tensor(layer.weight), torch.tensor(layer.bias)
            parts.append(linear)
            if layer.scale is not None:
                norm = nn.LayerNorm(layer.outputs)
                norm.weight.data, norm.bias.data = torch.tensor(layer.scale), torch.tensor(layer.shift)
                parts.append(norm)
            parts.append(nn.ReLU())
        self.parts: nn.Sequential = nn.Sequential(*parts[:-1])

    def forward(self, x: Tensor) -> Tensor:  # (n, inputs) -> (n, actions)
        """The outputs."""
        return self.parts(x)


class Navigating(nn.Module):
    """Sensors to actions: the best one of each lane, and the outputs that it has of all."""

    def __init__(self, policy: Policy, network: nn.Module | None = None) -> None:
        super().__init__()
        self.observing: Remembering | Tokenizing = Remembering(policy) if policy.remembers else Tokenizing(policy)
        self.network: nn.Module = Network(policy) if network is None else network

    def forward(self, sensors: Tensor, state: Tensor | None = None) -> tuple[Tensor, ...]:
        """Actions (n,), outputs (n, 6) and, with memory, the next state (n, 10)."""
        if isinstance(self.observing, Tokenizing):
            outputs = self.network(self.observing(sensors))
            return outputs.argmax(1), outputs
        features, state = self.observing(sensors, state)
        outputs = self.network(features)
        return outputs.argmax(1), outputs, state


def floor32(limits: object) -> Tensor:
    """The greatest float32 numbers that are not above some limits: a float32 exceeds both or neither."""
    exact = torch.as_tensor(limits, dtype=torch.float64)
    near = exact.float()
    return torch.where(near.double() > exact, torch.nextafter(near, torch.tensor(-torch.inf)), near)
