"""The policy as C99: one header and one source file, in float32 or int8, from the templates next to this file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
import torch

from gpf.edge import int8
from gpf.edge.arrays import Array, at_least, below, characters, literal, store, texts
from gpf.edge.flights import Flight
from gpf.edge.module import Navigating, blank_state
from gpf.edge.policy import Layer, Policy
from gpf.plume.memory import LONG_AGO, SIDE_SMOOTHING, WIND_SMOOTHING
from gpf.plume.scenario import ACTIONS, LEVELS, OCTANTS
from gpf.runs.folder import replace_text

HEADER, SOURCE = "gpf_policy.h", "gpf_policy.c"
TESTS = 32
"""Observations of the self-test, at most."""
Layers = Sequence[int8.QuantisedLayer] | None
"""The layers in 8 bits; None for float32."""


@dataclass(frozen=True)
class Sizes:
    """The size of an artefact, bytes; code comes on top of flash."""

    weights: int
    dense: int
    """Of all weights in float32, if none were left out."""
    ram: int

    def __str__(self) -> str:
        return f"weights {self.weights:,} bytes (dense float32: {self.dense:,}), RAM {self.ram:,} bytes"


def write_c(
    folder: Path, policy: Policy, flights: Sequence[Flight], *, quantised: bool = False, sequential: bool = False
) -> Sizes:
    """Write the header and the source to a folder.

    Args:
        folder: Where; it must exist.
        policy: The policy.
        flights: Episodes: the self-test replays the first observations of one, and int8 is calibrated on all.
        quantised: Weights and activations in int8 rather than float32.
        sequential: A function for each layer, rather than one for all.
    """
    if quantised and sequential:
        raise ValueError("sequential needs float32, got int8")
    if not flights:
        raise ValueError(
            f"export to {'int8' if quantised else 'c'} needs at least one episode, for"
            f" {'calibration' if quantised else 'its self-test'}, got 0"
        )
    layers = int8.quantise(policy, seen_inputs(policy, flights)) if quantised else None
    arrays, network, sparse = _network(policy, layers, sequential)
    weights = sum(array.size for array in arrays)
    tests = _tests(policy, layers, max(flights, key=_whiffs))
    settings = _settings(policy, sparse)
    values = {
        **numbers(policy),
        "layers": len(policy.layers),
        "tests": len(tests[0].values),
        "data": "\n\n".join(map(str, (*arrays, *tests))),
        "metadata": characters({**policy.about, "numbers": "int8" if quantised else "float32"}),
        "network": network,
        "ram": "sizeof(gpf_state) + sizeof activations" + (" + sizeof levels_of + sizeof sums" if quantised else ""),
        "flash": " + ".join(
            [f"sizeof {array.name}" for array in (*arrays, *tests)]
            + ["sizeof metadata"] + ([] if sequential else ["sizeof layers"])
        ),
    }  # fmt: skip
    values |= shared_parts(values)
    replace_text(folder / HEADER, template(HEADER).substitute(settings=settings, memory=values["memory"]))
    replace_text(folder / SOURCE, template(SOURCE).substitute(values))
    state = 4 * len(ACTIONS) + 32 * policy.samples + 40 * policy.remembers
    ram = state + policy.width * (8 + 6 * quantised)
    return Sizes(weights, 4 * sum(layer.weight.size + layer.bias.size for layer in policy.layers), ram)


def template(name: str) -> Template:
    """A template."""
    return Template((resources.files("gpf.edge") / "templates" / name).read_text())


def shared_parts(values: Mapping[str, Any]) -> dict[str, str]:
    """The parts that the learner has, too: the fields of memory, inputs from sensors, and the random stream."""
    tokenizer = template("tokenizer.c").substitute(values).rstrip()
    return {
        "memory": template("memory.h").template.rstrip(),
        "sensing": template("sensing.c").substitute(values, tokenizer=tokenizer).rstrip(),
        "random": template("random.c").template.rstrip(),
    }


def _settings(policy: Policy, sparse: bool) -> str:
    """The header's definitions."""
    normalises = any(layer.scale is not None for layer in policy.layers)
    flags = {
        "GPF_ACTIONS": len(ACTIONS), "GPF_WIDTH": policy.width, "GPF_REMEMBERS": int(policy.remembers),
        "GPF_SAMPLES": int(policy.samples), "GPF_NORMALISES": int(normalises), "GPF_SPARSE": int(sparse),
    }  # fmt: skip
    types = f"typedef {_unit(policy)} gpf_unit;\ntypedef {_offset(policy)} gpf_offset;"
    return "\n".join(f"#define {name} {value}" for name, value in flags.items()) + f"\n\n{types}"


def numbers(policy: Policy) -> dict[str, Any]:
    """The policy's own numbers, as C."""
    libm = ["cosf", "sinf", "expf", "sqrtf"] if policy.remembers else []
    libm += ["expf"] * (policy.samples and not policy.remembers)
    libm += ["sqrtf"] * (any(layer.scale is not None for layer in policy.layers) and not policy.remembers)
    return {
        "libm": ", ".join(libm) or "nothing",
        "doubles": " (and the draw of a sampled action)" if policy.samples else "",
        "names": texts(ACTIONS),
        "whiff": below(policy.whiff),
        "long_ago": literal(LONG_AGO),
        "stride": literal(policy.stride),
        "max_steps": literal(policy.max_steps),
        "wind_smoothing": literal(WIND_SMOOTHING),
        "side_smoothing": literal(SIDE_SMOOTHING),
        "edges": ", ".join(map(below, policy.level_edges)),
        "levels": LEVELS,
        "octants": OCTANTS,
        "octant_sign": repr(policy.octant_sign),
        "octant_offset": repr(policy.octant_offset),
        "calm": at_least(policy.calm_speed),
    }


def _network(policy: Policy, layers: Layers, sequential: bool) -> tuple[list[Array], str, bool]:
    """The arrays of the network, its code, and whether a layer is sparse."""
    arrays: list[Array] = []
    rows: list[str] = []
    functions: list[str] = []
    sparse = False
    chosen: Sequence[Layer | int8.QuantisedLayer] = policy.layers if layers is None else layers
    for n, layer in enumerate(chosen):
        stored = store(n, layer.weight, "float" if layers is None else "int8_t", _unit(policy), _offset(policy))
        more = _vectors(n, layer)
        arrays += [*stored.arrays, *more.values()]
        sparse |= stored.sparse
        names = {"weight": f"weight_{n}", "starts": f"starts_{n}" if stored.sparse else "0"}
        names |= {"units": f"units_{n}" if stored.sparse else "0"}
        names |= {name: more[name].name if name in more else "0" for name in ("worth", "bias", "scale", "shift")}
        if layers is None:
            del names["worth"]
        outputs, inputs = layer.weight.shape
        per_unit = [] if layers is None else [literal(float(layers[n].per_unit[0]) if n else 0.0)]
        rows.append("    {" + ", ".join([*names.values(), *per_unit, str(inputs), str(outputs)]) + "},")
        functions.append(_function(n, inputs, outputs, stored.sparse, "scale" in more, n == len(chosen) - 1))
    if layers is not None:
        arrays += [Array("float", "input_per_unit", layers[0].per_unit), Array("float", "input_zeros", layers[0].zeros)]
        levels = {"levels": int8.LEVELS, "input_levels": int8.INPUT_LEVELS}
        return arrays, template("int8.c").substitute(levels, table="\n".join(rows)), sparse
    if sequential:
        return arrays, "\n".join([*functions, _calls(len(functions))]), sparse
    return arrays, template("recursive.c").substitute(table="\n".join(rows)), sparse


def _vectors(n: int, layer: Any) -> dict[str, Array]:
    """The arrays of a layer that have a number for each output."""
    names = [name for name in ("worth", "bias", "scale", "shift") if getattr(layer, name, None) is not None]
    return {name: Array("float", f"{name}_{n}", getattr(layer, name)) for name in names}


def _function(n: int, inputs: int, outputs: int, sparse: bool, normalised: bool, last: bool) -> str:
    """A layer as a function of its own."""
    if sparse:
        loop = f"for (unsigned k = starts_{n}[i]; k < starts_{n}[i + 1]; ++k)"
        multiply = f"{loop} {{\n            out[units_{n}[k]] += weight_{n}[k] * x;\n        }}"
    else:
        loop = f"for (unsigned j = 0; j < {outputs}u; ++j)"
        multiply = f"{loop} {{\n            out[j] += weight_{n}[i * {outputs}u + j] * x;\n        }}"
    after = [f"    normalise({outputs}u, scale_{n}, shift_{n}, out);"] if normalised else []
    if not last:
        positive = "        out[j] = out[j] > 0.0f ? out[j] : 0.0f;"
        after.append(f"    for (unsigned j = 0; j < {outputs}u; ++j) {{\n{positive}\n    }}")
    return template("sequential.c").substitute(
        n=n, inputs=f"{inputs}u", outputs=f"{outputs}u", multiply=multiply, after="\n".join(after)
    )


def _calls(count: int) -> str:
    """The function that calls all layers."""
    calls = "\n".join(f"    layer_{n}(activations[{n % 2}], activations[{(n + 1) % 2}]);" for n in range(count))
    return f"static const float *run_network(void)\n{{\n{calls}\n    return activations[{count % 2}];\n}}"


def _tests(policy: Policy, layers: Layers, flight: Flight) -> list[Array]:
    """The first observations of an episode, and the network's outputs."""
    sensors = flight.sensors[:TESTS]
    inputs, outputs = replay(policy, sensors)
    if layers is not None:
        outputs = int8.outputs(layers, inputs)
    return [Array("float", "test_sensors", sensors), Array("float", "test_outputs", outputs)]


def replay(policy: Policy, sensors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The network's inputs and outputs for the observations of one episode, shape (steps, 5), by torch."""
    return replay_together(policy, [sensors])[0]


def replay_together(policy: Policy, episodes: Sequence[np.ndarray]) -> list[tuple[np.ndarray, np.ndarray]]:
    """The same of several episodes, which run side by side."""
    module = Navigating(policy)
    lengths = [len(sensors) for sensors in episodes]
    with torch.no_grad():
        if not policy.remembers:
            seen = module.observing(torch.from_numpy(np.concatenate(episodes)))
        else:
            steps, state = [], blank_state(len(episodes))
            for step in range(max(lengths)):
                rows = np.stack([sensors[min(step, len(sensors) - 1)] for sensors in episodes])
                features, state = module.observing(torch.from_numpy(rows), state)
                steps.append(features)
            lanes = torch.stack(steps, 1)
            seen = torch.cat([lane[:length] for lane, length in zip(lanes, lengths, strict=True)])
        outputs = module.network(seen)
    ends = np.cumsum(lengths)[:-1]
    return list(zip(np.split(seen.numpy(), ends), np.split(outputs.numpy(), ends), strict=True))


def seen_inputs(policy: Policy, flights: Sequence[Flight]) -> np.ndarray:
    """The network's inputs in some episodes."""
    return np.concatenate([inputs for inputs, _ in replay_together(policy, [flight.sensors for flight in flights])])


def _whiffs(flight: Flight) -> float:
    return float(flight.sensors[:TESTS, :2].sum())


def _unit(policy: Policy) -> str:
    return "uint8_t" if policy.width <= 256 else "uint16_t"


def _offset(policy: Policy) -> str:
    return "uint16_t" if max(layer.weight.size for layer in policy.layers) < 2**16 else "uint32_t"
