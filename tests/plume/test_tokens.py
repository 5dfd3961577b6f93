import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpf.plume import Scenario
from gpf.plume import tokens as vocabulary
from gpf.plume.row import row_of
from gpf.plume.tokens import ONEHOT_SIZE, STATES, level, octant, onehot, state_index
from gpf.plume.world import World

PAPER, REFERENCE = row_of(Scenario.preset("paper")), row_of(Scenario.preset("reference"))


def plain_octant(wind_direction, heading, centred, clockwise):
    came_from = math.degrees(wind_direction) + 180 - math.degrees(heading)
    turned = (-came_from if clockwise else came_from) + (22.5 if centred else 0)
    return math.floor((turned % 360) / 45) % 8


@pytest.mark.parametrize(
    ("reading", "expected"),
    [(0, 0), (3e-3, 0), (3.0001e-3, 1), (6e-3, 1), (0.01, 2), (0.045, 3), (0.0451, 4), (0.6, 5), (0.61, 6), (1.0, 6)],
)
def test_a_reading_equal_to_an_edge_belongs_below_it(reading, expected):
    assert level(PAPER, reading) == expected


@given(st.floats(0.0, 1.0))
def test_levels_equal_numpys_searchsorted(reading):
    assert level(PAPER, reading) == np.searchsorted(Scenario().level_edges, reading, side="left")


@given(st.floats(-10.0, 10.0), st.floats(-math.pi, math.pi))
def test_octants_equal_a_plain_version(wind_direction, heading):
    relative = math.degrees(wind_direction + math.pi - heading) % 22.5
    if min(relative, 22.5 - relative) < 1e-6:
        return  # on a border, either side may be right
    assert octant(PAPER, 1.0, wind_direction, heading) == plain_octant(wind_direction, heading, True, True)
    assert octant(REFERENCE, 1.0, wind_direction, heading) == plain_octant(wind_direction, heading, False, False)


@pytest.mark.parametrize(("side", "in_paper", "in_reference"), [("ahead", 0, 0), ("right", 2, 6), ("left", 6, 2)])
def test_octants_by_hand(side, in_paper, in_reference):
    """The wind blows along +x, so it comes from -x; facing -x means heading pi."""
    heading = {"ahead": math.pi, "right": -math.pi / 2, "left": math.pi / 2}[side] - 1e-6
    assert octant(PAPER, 1.0, 0.0, heading) == in_paper
    assert octant(REFERENCE, 1.0, 0.0, heading) == in_reference


def test_calm_is_octant_zero():
    assert octant(PAPER, 0.049, 0.0, 0.0) == 0
    assert octant(PAPER, 0.05, 0.0, 0.0) == 4
    assert octant(PAPER, 0.051, 0.0, 0.0) == 4


def test_an_angle_that_rounds_up_to_a_whole_turn_is_octant_zero():
    assert octant(REFERENCE, 1.0, -math.pi, 1e-20) == 0


def test_onehot_and_state_index_are_bijections_of_the_tokens():
    every = np.array([(a, b, c) for a in range(7) for b in range(7) for c in range(8)])
    assert sorted(state_index(every)) == list(range(STATES))
    vectors = np.empty((STATES, ONEHOT_SIZE), np.float32)
    onehot(every, vectors)
    assert (vectors.sum(axis=1) == 3).all()
    recovered = [vectors[:, :7].argmax(1), vectors[:, 7:14].argmax(1), vectors[:, 14:].argmax(1)]
    assert (np.stack(recovered, axis=1) == every).all()


def test_vocabulary_has_all_tokens_of_the_paper():
    sizes = {stream: len(tokens) for stream, tokens in vocabulary.VOCABULARY.items()}
    assert sizes == {"left": 7, "right": 7, "wind": 8, "action": 6, "special": 4}
    for name in ("PAD", "BOS", "EOS", "RESET"):
        assert vocabulary.SPECIAL_TOKENS[getattr(vocabulary, name)] == name


def test_a_world_reports_the_tokens_of_its_readings():
    world = World(64, "reference")
    world.seed(range(64))
    world.begin()
    for _ in range(200):
        world.step(np.zeros(64, np.int64))
        lanes = {name: world.lanes[name].tolist() for name in ("left", "right", "wind_direction", "heading")}
        for stream, antenna in enumerate(("left", "right")):
            assert (world.tokens[:, stream] == np.searchsorted(Scenario().level_edges, lanes[antenna])).all()
        winds = zip(lanes["wind_direction"], lanes["heading"], strict=True)
        assert world.tokens[:, 2].tolist() == [plain_octant(*wind, False, False) for wind in winds]
