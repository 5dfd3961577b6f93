"""Networks, clients and messages for the tests of this folder."""

import numpy as np
from hypothesis import strategies as st

from gpf.federated.merging import Network

WIDTH = 4
INPUTS = 3


def sizes(depth, inputs=INPUTS, width=WIDTH, outputs=2):
    """Names and shapes of the arrays of a stack of linear layers with a head."""
    found = {}
    for layer in range(depth):
        found[f"layers.{layer}.linear.weight"] = (width, inputs if layer == 0 else width)
        found[f"layers.{layer}.linear.bias"] = (width,)
    return {**found, "head.weight": (outputs, width), "head.bias": (outputs,)}


def make_network(seed, depth=2, kept=1.0, frozen=(), dtype=np.float32):
    """A network of random weights, of which a share is not pruned."""
    random = np.random.default_rng(seed)
    arrays = {name: random.normal(size=shape).astype(dtype) for name, shape in sizes(depth).items()}
    masks = {}
    for name in arrays:
        if name.startswith("layers") and name.endswith("weight") and kept < 1.0:
            masks[name] = random.random(arrays[name].shape) < kept
            if masks[name].all():
                del masks[name]
                continue
            arrays[name] = np.where(masks[name], arrays[name], 0).astype(dtype)
    return Network(arrays, depth, masks, frozenset(frozen))


def outputs(network, x):
    """What a network of linear layers and ReLU computes; an independent oracle for its function."""
    for layer in range(network.depth):
        weight, bias = (network.arrays[f"layers.{layer}.linear.{part}"] for part in ("weight", "bias"))
        x = np.maximum(x @ weight.T.astype(np.float64) + bias, 0.0)
    return x @ network.arrays["head.weight"].T.astype(np.float64) + network.arrays["head.bias"]


def same(one, other):
    """Whether two networks are equal, bit for bit."""
    return (
        one.depth == other.depth
        and one.frozen == other.frozen
        and one.arrays.keys() == other.arrays.keys()
        and all(np.array_equal(one.arrays[name], other.arrays[name]) for name in one.arrays)
        and all(one.arrays[name].dtype == other.arrays[name].dtype for name in one.arrays)
        and one.masks.keys() == other.masks.keys()
        and all(np.array_equal(one.masks[name], other.masks[name]) for name in one.masks)
    )


@st.composite
def networks(draw, depth=None, frozen=True):
    """Networks of any depth up to three, masked and frozen in any way."""
    deep = draw(st.integers(1, 3)) if depth is None else depth
    chosen = draw(st.sets(st.integers(0, deep - 1))) if frozen else set()
    kept = draw(st.sampled_from([1.0, 0.7, 0.3]))
    return make_network(draw(st.integers(0, 10_000)), deep, kept, chosen, draw(st.sampled_from([np.float32])))


rules = st.sampled_from(["mean", "trimmed", "median"])
