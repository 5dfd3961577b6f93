"""An emulated Cortex-M4F learns what this machine learns, bit for bit, in float32."""

import zlib

import numpy as np
from learning_networks import RULES, learning_from, make_net, transitions

from gpf.edge.learners import FROZEN, GROWN, PRUNED, ROOTS, Learners
from gpf.edge.learning import SOURCE
from gpf.edge.m4 import learn_on_m4, measure_object

METRICS = [0.1, 0.3, *[0.5] * 28]


def test_the_board_makes_the_same_updates_as_this_machine(tmp_path):
    learning = learning_from(make_net({**RULES, "saliency": "obd", "saliency_threshold": 1e-3}))
    host, epoch = Learners(tmp_path, learning, [0]), 10
    steps = [
        (inputs, action, reward, after is None) for inputs, action, reward, after in transitions(epoch * len(METRICS))
    ]
    board = learn_on_m4(tmp_path, steps, METRICS)
    happened, checksums = [], []
    for n, (inputs, action, reward, over) in enumerate(steps):
        host.update(inputs, action, reward, None if over else steps[(n + 1) % len(steps)][0])
        if n % epoch == epoch - 1:
            happened.append(host.end_epoch(METRICS[n // epoch]))
            checksums.append(0)
            for name in ("values", "first", "second", "belief"):
                checksums[-1] = zlib.crc32(host.memory[0][name].tobytes(), checksums[-1])
    assert board.happened == happened
    assert board.checksums == checksums
    assert all(any(one & kind for one in happened) for kind in (GROWN, PRUNED, FROZEN))
    assert len(set(checksums)) == len(checksums)
    assert board.ram == host.code.gpf_learner_ram()
    weights = int((host.memory[0]["values"] != 0).sum())
    assert 1000 < min(board.instructions) < max(board.instructions) < 20_000 + 100 * weights
    assert np.argmax(board.instructions) > 5  # more layers, more instructions


def test_code_and_constants_of_a_learner_are_small(tmp_path):
    learning = learning_from(make_net(RULES))
    Learners(tmp_path, learning, [0])
    size = measure_object(tmp_path, ROOTS, source=SOURCE)
    weights = 4 * sum(layer.weight.size + layer.bias.size for layer in learning.layers)
    assert weights < size.flash < weights + 16_000
    assert size.ram < 2_000  # work space; the learner itself is the caller's
