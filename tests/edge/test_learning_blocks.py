"""A learner on the device outlives a loss of power: blocks are checked, and a torn one gives way to the one before."""

import ctypes
import zlib

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from learning_networks import RULES, learning_from, make_net, transitions

from gpf.edge.learners import WRITER, Learners

EVENTFUL = {**RULES, "drop": 0.5, "drop_window": 2}


class Flash:
    """Two slots, as a robot's flash memory: power may go after any number of bytes."""

    def __init__(self, size):
        self.slots = [bytearray(b"\xff" * size) for _ in range(2)]
        self.left = None

    def write(self, context, slot, offset, address, count):
        written = count if self.left is None else min(count, self.left)
        self.slots[slot][offset : offset + written] = ctypes.string_at(address, written)
        if self.left is not None:
            self.left -= written
        return int(written == count)

    def save(self, learners, left=None):
        self.left = left
        return learners.code.gpf_save(learners.at(0), WRITER(self.write), None)

    def restore(self, learners):
        return learners.code.gpf_restore(learners.at(0), *(bytes(slot) for slot in self.slots))


def live(learners, count, seed=0, metric=0.5):
    """Some epochs of a learner's life."""
    for n, transition in enumerate(transitions(count, seed)):
        learners.update(*transition)
        if n % 5 == 4:
            learners.end_epoch(metric)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Two programs of the same learner."""
    learning = learning_from(make_net(EVENTFUL))
    return [Learners(tmp_path_factory.mktemp("learner"), learning, [0], real) for real in ("float", "float")]


def test_what_was_saved_goes_on_as_if_nothing_had_happened(pair):
    one, other = pair
    flash = Flash(one.code.gpf_block_size())
    one.begin([0])
    live(one, 100)
    assert flash.save(one) == 1
    assert one.memory[0]["depth"] > 1
    other.begin([1])
    assert flash.restore(other) in (0, 1)
    assert other.memory.tobytes() == one.memory.tobytes()
    for learners in pair:
        live(learners, 50, 1, 0.1)
    assert other.memory.tobytes() == one.memory.tobytes()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_torn_write_is_rejected_and_the_block_before_it_is_used(pair, data):
    learners, other = pair
    size = learners.code.gpf_block_size()
    flash = Flash(size)
    learners.begin([0])
    before = []
    for turn in range(data.draw(st.integers(1, 3), "blocks before")):
        live(learners, 5, turn)
        assert flash.save(learners) == 1
        before.append(learners.memory.tobytes())
    live(learners, 5, 9)
    torn = data.draw(
        st.one_of(st.integers(0, size - 1), st.integers(0, 40), st.integers(size - 8, size - 1)), "torn at"
    )
    assert flash.save(learners, torn) == 0
    other.begin([3])
    assert flash.restore(other) == len(before) % 2
    assert other.memory.tobytes() == before[-1]
    live(other, 5, 10)
    assert flash.save(other) == 1  # where the torn one was
    learners.begin([4])
    assert flash.restore(learners) == (len(before) + 1) % 2
    assert learners.memory.tobytes() == other.memory.tobytes()


def test_every_place_of_a_tear_is_found(pair):
    learners, other = pair
    size = learners.code.gpf_block_size()
    learners.begin([0])
    flash = Flash(size)
    live(learners, 5)
    flash.save(learners)
    older = bytes(flash.slots[1])
    for turn in (1, 2):
        live(learners, 5, turn)
        flash.save(learners)
    newest = bytes(flash.slots[1])
    same = next(n for n in range(1, size + 1) if older[-n] != newest[-n]) - 1  # bytes at the end that are alike
    for torn in range(1, size - same):
        if older[:torn] == newest[:torn]:
            continue
        flash.slots[1][:] = newest[:torn] + older[torn:]
        assert flash.restore(other) == 0, f"torn at {torn}"
    assert other.memory[0]["sequence"] == 2


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_damaged_byte_is_found(pair, data):
    learners, other = pair
    size = learners.code.gpf_block_size()
    flash = Flash(size)
    learners.begin([0])
    flash.save(learners)
    slot = flash.slots[1]
    slot[data.draw(st.integers(0, size - 1))] ^= data.draw(st.integers(1, 255))
    other.begin([3])
    untouched = other.memory.tobytes()
    assert flash.restore(other) == -1
    assert other.memory.tobytes() == untouched


def test_blocks_of_another_program_are_refused(tmp_path, pair):
    learners, _ = pair
    flash = Flash(learners.code.gpf_block_size())
    learners.begin([0])
    flash.save(learners)
    stranger = Learners(tmp_path, learning_from(make_net(EVENTFUL), discount=0.9), [0])
    assert stranger.code.gpf_block_size() == learners.code.gpf_block_size()
    assert flash.restore(stranger) == -1
    assert flash.restore(learners) == 1


@given(st.binary(max_size=100), st.binary(max_size=100))
def test_the_checksum_is_that_of_zlib(pair, one, other):
    crc = pair[0].code.gpf_crc32
    crc.restype = ctypes.c_uint32
    first = crc(0, one, ctypes.c_size_t(len(one)))
    assert first == zlib.crc32(one)
    assert crc(ctypes.c_uint32(first), other, ctypes.c_size_t(len(other))) == zlib.crc32(one + other)


def test_the_newer_block_wins_when_the_sequence_number_overflows(pair):
    learners, other = pair
    flash = Flash(learners.code.gpf_block_size())
    learners.begin([0])
    learners.memory["sequence"] = 2**32 - 2
    for turn in range(2):
        live(learners, 5, turn)
        assert flash.save(learners) == 1
    assert learners.memory[0]["sequence"] == 0
    assert flash.restore(other) == 0
    np.testing.assert_array_equal(other.memory["values"], learners.memory["values"])
