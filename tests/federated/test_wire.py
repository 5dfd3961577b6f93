"""Messages as bytes: what goes in comes out, and nothing that is not what it says gets past the head."""

import hashlib
import json
import struct

import numpy as np
import pytest
from federations import make_network, networks, same
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load, save

from gpf.federated.admission import Limits, Refused, check_update
from gpf.federated.merging import Network
from gpf.federated.wire import HEAD, MAGIC, Message, pack, seal, unpack

NAME = "layers.1.linear.weight"


@given(
    network=networks(),
    about=st.dictionaries(st.text(max_size=5), st.integers() | st.floats(0, 1) | st.text(max_size=9)),
)
def test_a_message_comes_back_as_it_was(network, about):
    message = unpack(pack(Message(network, about)))
    assert same(message.network, network)
    assert message.about == about


def test_pruned_entries_are_not_sent():
    random = np.random.default_rng(0)
    mask = random.random((64, 64)) < 0.3
    weight = np.where(mask, random.normal(size=(64, 64)), 0).astype(np.float32)
    full, sparse = (pack(Message(Network({NAME: weight}, 2, masks))) for masks in ({}, {NAME: mask}))
    saved = 4 * int((~mask).sum()) - 64 * 64 // 8  # the entries, less one bit each
    assert len(full) - len(sparse) == pytest.approx(saved, abs=100)


def test_layers_can_be_left_out():
    message = unpack(pack(Message(make_network(0, 3)), leave_out=frozenset({1})))
    assert message.network.depth == 3
    assert not message.network.of_layer(1)
    assert message.network.of_layer(2)


@given(data=st.binary(max_size=400))
def test_noise_is_refused(data):
    with pytest.raises(Refused):
        unpack(data)


@given(place=st.integers(0, 10_000), change=st.integers(1, 255))
def test_a_flipped_byte_is_refused_wherever_it_is(place, change):
    data = bytearray(pack(Message(make_network(0), {"round": 1})))
    data[place % len(data)] ^= change
    with pytest.raises(Refused):
        unpack(bytes(data))


def parts(message):
    data = pack(message)
    size = HEAD.unpack_from(data)[1]
    return json.loads(data[HEAD.size : HEAD.size + size]), load(data[HEAD.size + size :])


def forged(change):
    """A message whose head is right, and whose manifest and tensors were changed."""
    manifest, tensors = parts(Message(make_network(0, 2, 0.5), {"round": 1}))
    change(manifest, tensors)
    return seal(json.dumps(manifest).encode(), save(tensors))


LIES = {
    "another shape": (lambda m, t: m["arrays"]["head.bias"].update(shape=[3]), r"head.bias must have shape \(3,\)"),
    "another type": (lambda m, t: m["arrays"]["head.bias"].update(dtype="float64"), "head.bias must be float64"),
    "a type that is none": (lambda m, t: m["arrays"]["head.bias"].update(dtype="object"), "'object'"),
    "a huge shape": (lambda m, t: m["arrays"][NAME].update(shape=[2**40, 2**40]), "at most .* entries"),
    "a negative shape": (lambda m, t: m["arrays"][NAME].update(shape=[-4, -4]), "whole numbers"),
    "an array that is not there": (lambda m, t: t.pop("value/head.bias"), "head.bias must be float32 .*got nothing"),
    "an array too many": (lambda m, t: t.update(extra=np.zeros(3)), "'extra' too"),
    "no mask": (lambda m, t: t.pop(f"mask/{NAME}"), f"mask of {NAME}"),
    "a mask that does not fit": (lambda m, t: t.update({f"mask/{NAME}": np.full(2, 255, np.uint8)}), "16 entries"),
    "a mask too long": (lambda m, t: t.update({f"mask/{NAME}": np.zeros(9, np.uint8)}), "must be 2 bytes"),
    "depth in words": (lambda m, t: m.update(depth="two"), "depth .* int"),
    "no depth": (lambda m, t: m.update(depth=0), "depth must be from 1"),
    "frozen in words": (lambda m, t: m.update(frozen=["all"]), "frozen must be whole numbers"),
    "more than there should be": (lambda m, t: m.update(code="import os"), "and nothing else"),
    "no shape at all": (lambda m, t: m["arrays"].update({NAME: 7}), "dtype, shape and masked"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_manifest_that_lies_is_refused_with_the_reason(lie):
    change, words = LIES[lie]
    with pytest.raises(Refused, match=words):
        unpack(forged(change))


def head(data, **changes):
    names = ("magic", "manifest", "tensors", "first", "second")
    return HEAD.pack(*{**dict(zip(names, HEAD.unpack_from(data), strict=True)), **changes}.values()) + data[HEAD.size :]


def test_sizes_are_compared_with_limits_before_anything_else():
    data = pack(Message(make_network(0)))
    with pytest.raises(Refused, match="tensors must be at most 100 bytes"):
        unpack(data, Limits(tensors=100))
    with pytest.raises(Refused, match="manifest must be at most 10 bytes"):
        unpack(data, Limits(manifest=10))
    with pytest.raises(Refused, match=r"tensors must be at most .* got 1,099,511,627,776"):
        unpack(head(data, tensors=2**40))  # claimed only: nothing of that size is allocated
    with pytest.raises(Refused, match="as it says itself"):
        unpack(data + b"x")
    with pytest.raises(Refused, match="SHA-256"):
        unpack(head(data, second=hashlib.sha256(b"").digest()))
    with pytest.raises(Refused, match="begin with"):
        unpack(head(data, magic=b"PK\x03\x04\0\0\0\0"))


def test_a_pickle_is_never_loaded():
    class Bomb:
        def __reduce__(self):
            raise AssertionError("it was pickled")

    evil = b"\x80\x04\x8c\x02os\x8c\x06system\x93."
    with pytest.raises(Refused, match="safetensors"):
        unpack(seal(pack_manifest(), evil))
    with pytest.raises(Refused, match="manifest must be JSON"):
        unpack(seal(evil, save({})))


def pack_manifest(about="{}"):
    return f'{{"stack": "layers", "depth": 1, "frozen": [], "arrays": {{}}, "about": {about}}}'.encode()


@pytest.mark.parametrize("about", ['{"round": NaN}', '{"round": Infinity}', "[" * 100_000, '"text"', "[]"])
def test_json_that_is_none_is_refused(about):
    with pytest.raises(Refused, match="manifest"):
        unpack(seal(pack_manifest(about), save({})))


def test_a_safetensors_header_of_any_size_is_refused():
    with pytest.raises(Refused, match="safetensors"):
        unpack(seal(pack_manifest(), struct.pack("<Q", 2**63) + b"{}"))


def test_the_head_is_as_long_as_the_format_says():
    assert HEAD.size == 8 + 4 + 8 + 32 + 32
    assert pack(Message(make_network(0))).startswith(MAGIC)


# What a server takes


def changed(network, **arrays):
    return Network({**network.arrays, **arrays}, network.depth, network.masks, network.frozen)


BAD = {
    "NaN": ({"head.bias": np.full(2, np.nan, np.float32)}, "head.bias must be finite"),
    "infinity": ({"head.bias": np.full(2, np.inf, np.float32)}, "head.bias must be finite"),
    "huge": ({"head.bias": np.full(2, 1e9, np.float32)}, "at most 10000 in size"),
    "a wrong shape": ({"head.bias": np.zeros(7, np.float32)}, r"shape \(2,\), got float32 of shape \(7,\)"),
    "a wrong type": ({"head.bias": np.zeros(2, np.float64)}, "must be float32"),
    "an unknown name": ({"backdoor": np.zeros(2, np.float32)}, "'backdoor' too"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_network_that_cannot_be_merged_is_refused(what):
    arrays, words = BAD[what]
    before = make_network(0)
    with pytest.raises(Refused, match=words):
        check_update(changed(make_network(1), **arrays), before, Limits())


def test_a_network_that_clients_can_have_made_is_taken():
    before = make_network(0, 2, 0.7)
    for depth in (2, 3):
        check_update(make_network(1, depth, 0.5), before, Limits())
    sent = {name: array for name, array in before.arrays.items() if before.layer_of(name) != 1}
    check_update(Network(sent, 2, {}, frozenset({1})), before, Limits())


def test_depth_missing_arrays_and_masks_are_checked():
    before = make_network(0)
    with pytest.raises(Refused, match="depth must be at most 3, got 4"):
        check_update(make_network(1, 4), before, Limits())
    missing = {name: a for name, a in before.arrays.items() if name != "head.bias"}
    with pytest.raises(Refused, match="head.bias is missing"):
        check_update(Network(missing, 2), before, Limits())
    with pytest.raises(Refused, match="head.weight must be a weight of the stack"):
        check_update(Network(before.arrays, 2, {"head.weight": np.ones((2, 4), bool)}), before, Limits())
    with pytest.raises(Refused, match="mask of layers.1.linear.weight"):
        check_update(Network(before.arrays, 2, {"layers.1.linear.weight": np.ones((2, 4), bool)}), before, Limits())
    with pytest.raises(Refused, match="frozen layers must be from 0 to 1"):
        check_update(Network(before.arrays, 2, {}, frozenset({5})), before, Limits())
    with pytest.raises(Refused, match="stack must be 'layers'"):
        check_update(Network(before.arrays, 2, stack="blocks"), before, Limits())
