"""The policy as ONNX: sensors and memory in, actions, outputs and memory out, for any number of robots at once."""

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gpf.edge.c import replay_together
from gpf.edge.flights import Flight
from gpf.edge.module import STATE, Navigating, Network, blank_state
from gpf.edge.policy import Layer, Policy

FILE = "gpf_policy.onnx"
CLOSE = 1e-4
"""How far outputs may be from torch's, relative to the greatest."""


class Repeated(nn.Module):
    """The network with its hidden layers of equal width as one that is scanned: ONNX's `Scan` over stacked weights."""

    weights: Tensor  # (layers, width, width)
    biases: Tensor  # (layers, width)

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        first, *hidden, last = policy.layers
        self.first: nn.Linear = _linear(first)
        self.last: nn.Linear = _linear(last)
        self.norm: nn.LayerNorm | None = None
        if first.scale is not None:
            self.norm = nn.LayerNorm(first.outputs)
            self.norm.weight.data, self.norm.bias.data = torch.tensor(first.scale), torch.tensor(first.shift)
        self.register_buffer("weights", torch.from_numpy(np.stack([layer.weight.T for layer in hidden])))
        self.register_buffer("biases", torch.from_numpy(np.stack([layer.bias for layer in hidden])))

    def forward(self, x: Tensor) -> Tensor:  # (n, inputs) -> (n, actions)
        """The outputs."""
        from torch._higher_order_ops.scan import scan

        x = self.first(x)
        x = (x if self.norm is None else self.norm(x)).relu()
        return self.last(scan(_hidden, x, (self.weights, self.biases))[0])


def _hidden(x: Tensor, layer: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    weight, bias = layer
    return torch.addmm(bias, x, weight).relu(), bias.sum()


def is_repeated(policy: Policy) -> bool:
    """Whether there are two hidden layers or more after the first, all alike."""
    first, *hidden, _ = policy.layers
    alike = (first.outputs, first.outputs)
    return len(hidden) > 1 and all(layer.weight.shape == alike and layer.scale is None for layer in hidden)


def write_onnx(folder: Path, policy: Policy, flights: Sequence[Flight], *, sequential: bool = False) -> int:
    """Write the model, and verify it with onnxruntime on episodes; returns its bytes.

    Args:
        folder: Where; it must exist.
        policy: The policy.
        flights: Episodes on which onnxruntime must do what torch does.
        sequential: Each hidden layer by itself, also where a `Scan` over stacked weights would do.
    """
    if not flights:
        raise ValueError("export to onnx needs at least one episode, on which it is verified, got 0")
    network: nn.Module = Repeated(policy) if is_repeated(policy) and not sequential else Network(policy)
    module = Navigating(policy, network).eval().requires_grad_(False)
    path = folder / FILE
    sensors = torch.from_numpy(flights[0].sensors[:2].copy())
    if len(sensors) < 2:
        sensors = sensors.repeat(2, 1)
    names = ["sensors", "state"][: 1 + policy.remembers]
    from onnx_ir.passes.common import ClearMetadataAndDocStringPass

    logging.getLogger("torch.onnx._internal.exporter._registration").setLevel(logging.ERROR)  # of no torchvision
    program = torch.onnx.export(
        module, (sensors, blank_state(2))[: len(names)], dynamo=True, verbose=False,
        input_names=names, output_names=["action", "outputs", "next_state"][: 2 + policy.remembers],
        dynamic_shapes={name: {0: torch.export.Dim("robots", min=1)} for name in names},
    )  # fmt: skip
    assert program is not None
    ClearMetadataAndDocStringPass()(program.model)  # stack traces, which are larger than the network
    about = {**policy.about, "numbers": "float32", "state": list(STATE) if policy.remembers else []}
    program.model.metadata_props.update({"gpf": json.dumps(about, sort_keys=True)})
    program.save(str(path), external_data=False)
    verify(path, policy, flights)
    return path.stat().st_size


def verify(path: Path, policy: Policy, flights: Sequence[Flight]) -> None:
    """Refuse a model that does not do in onnxruntime what torch does; all episodes run at once."""
    _, outputs = run(path, flights)
    replayed = replay_together(policy, [flight.sensors for flight in flights])
    for (_, wanted), found in zip(replayed, outputs, strict=True):
        off = float(np.abs(found - wanted).max() / max(1.0, float(np.abs(wanted).max())))
        if not off <= CLOSE:
            raise RuntimeError(f"{path} must give torch's outputs to within {CLOSE:g} in onnxruntime, got {off:g}")


def run(path: Path, flights: Sequence[Flight]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The actions and outputs that onnxruntime gives for the observations of episodes, which run side by side."""
    session = make_session(path)
    lanes, longest = len(flights), max(len(flight.sensors) for flight in flights)
    feed: dict[str, Any] = {}
    if len(session.get_inputs()) > 1:
        feed["state"] = blank_state(lanes).numpy()
    actions, outputs = [], []
    for step in range(longest):
        feed["sensors"] = np.stack([flight.sensors[min(step, len(flight.sensors) - 1)] for flight in flights])
        action, output, *state = session.run(None, feed)
        feed |= {"state": state[0]} if state else {}
        actions.append(action)
        outputs.append(output)
    ends = [len(flight.sensors) for flight in flights]
    return _by_episode(actions, ends), _by_episode(outputs, ends)


def _by_episode(steps: list[np.ndarray], ends: list[int]) -> list[np.ndarray]:
    """Of each lane, the steps of its episode."""
    return [lane[:end] for lane, end in zip(np.stack(steps, 1), ends, strict=True)]


def make_session(path: Path) -> Any:
    """An onnxruntime session on one thread: networks are too small for more."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _linear(layer: Layer) -> nn.Linear:
    linear = nn.Linear(layer.inputs, layer.outputs)
    linear.weight.data, linear.bias.data = torch.tensor(layer.weight), torch.tensor(layer.bias)
    return linear
