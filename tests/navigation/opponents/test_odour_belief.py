"""The map of whiffs and the belief over it, against sums over all cells and ages in plain Python."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from gpf.navigation.opponents.belief import expected_score, learn, rule_out, set_prior, write_logs
from gpf.navigation.opponents.detection import DetectionModel
from gpf.navigation.opponents.odour_map import blank_map, draw_map
from gpf.navigation.opponents.scores import INFOTAXIS, SPACE_AWARE
from gpf.navigation.opponents.track import TRACK
from gpf.plume.kernels import kernel

MODEL = DetectionModel(0.3, 0.1, 0.05, 1.2, 0.8, 0.01, 0.5)
CELL, REACH, DURATION, KNOWN = 0.5, 8, 0.5, 1.2
PATH = np.column_stack([0.5 * np.arange(1, 9), 0.1 * np.arange(1, 9)])


@kernel
def _draw(odour, model, path, duration, known, cell, x, y):
    draw_map(odour, model, path, duration, known, cell, x, y)


@kernel
def _learn(belief, odour, model, row, column, whiff, trust, doubt):
    learn(belief, odour, model, row, column, whiff, trust, doubt)


@kernel
def _expected(rule, belief, logs, alive, odour, distances, near, model, row, column):
    write_logs(belief, logs, alive)
    return expected_score(rule, belief, logs, alive, odour, distances, near, model, row, column)


@kernel
def _rule_out(belief, cell, track, radius):
    rule_out(belief, cell, track[0], radius)


@kernel
def _prior(belief, cell, nearest, farthest, upwind, bearing):
    set_prior(belief, cell, nearest, farthest, upwind, bearing)


def drawn(x=0.1, y=-0.2):
    odour = blank_map(REACH)
    _draw(odour, MODEL.record(), PATH, DURATION, KNOWN, CELL, x, y)
    return odour


def whiff_probability(dx, dy):
    """By the definition: of an agent whose source is displaced by (dx, dy), m."""
    mean = 0.0
    for k, (px, py) in enumerate(PATH):
        age = DURATION * (k + 1)
        narrow = MODEL.spread + MODEL.growth * age
        wide = narrow + MODEL.unknown * max(age - KNOWN, 0.0)
        strength = MODEL.strength * age**-MODEL.decay * (narrow / wide) ** 2
        mean += strength * math.exp(-((dx + px) ** 2 + (dy + py) ** 2) / (2 * wide**2))
    return 1 - (1 - MODEL.false) * math.exp(-mean)


def mapped(odour, v, u):
    low, high, left, right = odour.box
    return odour.whiff[v, u] if low <= v < high and left <= u < right else MODEL.false


def random_belief(seed=0):
    n = 2 * REACH + 1
    return np.random.default_rng(seed).dirichlet(np.full(n * n, 0.2)).reshape(n, n)


def test_the_map_is_the_sum_over_all_ages():
    x, y = 0.1, -0.2
    odour = drawn(x, y)
    for v in range(2 * REACH + 1):
        for u in range(2 * REACH + 1):
            wanted = whiff_probability(CELL * (u - REACH) - x, CELL * (v - REACH) - y)
            assert mapped(odour, v, u) == pytest.approx(wanted, abs=0.03)  # ages end at three spreads
    middle = odour.whiff[odour.box[0] : odour.box[1], odour.box[2] : odour.box[3]]
    assert middle.max() > 0.3


def test_a_map_forgets_the_one_before():
    odour, fresh = drawn(), blank_map(REACH)
    _draw(odour, MODEL.record(), -PATH, DURATION, KNOWN, CELL, 0.0, 0.0)
    _draw(fresh, MODEL.record(), -PATH, DURATION, KNOWN, CELL, 0.0, 0.0)
    for now, wanted in zip(odour[:1], fresh[:1], strict=True):
        np.testing.assert_array_equal(now, wanted)


@pytest.mark.parametrize("whiff", [True, False])
def test_bayes_rule_is_that_of_an_enumeration(whiff):
    odour, belief, row, column, trust, doubt = drawn(), random_belief(), REACH + 2, REACH - 1, 0.6, 0.01
    n = len(belief)
    wanted = np.zeros_like(belief)
    for i in range(n):
        for j in range(n):
            v, u = i - row + REACH, j - column + REACH
            inside = 0 <= v < n and 0 <= u < n
            p = mapped(odour, v, u) if inside else MODEL.false
            wanted[i, j] = belief[i, j] * (p if whiff else 1 - p) ** trust
    wanted = (1 - doubt) * wanted / wanted.sum() + doubt / n**2
    _learn(belief, odour, MODEL.record(), row, column, whiff, trust, doubt)
    np.testing.assert_allclose(belief, wanted, rtol=1e-9)


@pytest.mark.parametrize("rule", [INFOTAXIS, SPACE_AWARE])
def test_expected_scores_are_those_of_an_enumeration(rule):
    odour, belief, row, column, near = drawn(), random_belief(2), REACH - 3, REACH + 1, 0.75
    n = len(belief)
    y, x = np.mgrid[-2 * REACH : 2 * REACH + 1, -2 * REACH : 2 * REACH + 1]
    wanted = 0.0
    for whiff in (True, False):
        weights, distances = [], []
        for i in range(n):
            for j in range(n):
                d = math.hypot(i - row, j - column)
                if d > near:
                    v, u = i - row + REACH, j - column + REACH
                    p = mapped(odour, v, u) if 0 <= v < n and 0 <= u < n else MODEL.false
                    weights.append(belief[i, j] * (p if whiff else 1 - p))
                    distances.append(d)
        total = sum(weights)
        posterior = np.array(weights) / total
        entropy = -sum(p * math.log2(p) for p in posterior if p > 0)
        far = float(posterior @ distances)
        wanted += total * (entropy if rule == INFOTAXIS else math.log2(far + 2 ** (entropy - 1) - 0.5))
    found = _expected(
        rule, belief, np.zeros_like(belief), np.zeros(4, np.int64), odour, np.hypot(x, y), near, MODEL.record(), row,
        column,
    )  # fmt: skip
    assert found == pytest.approx(wanted, abs=1e-5)


def test_the_source_is_neither_behind_a_wall_nor_where_the_agent_is():
    belief, track = random_belief(3), np.zeros(1, TRACK)
    track["low_x"], track["low_y"], track["high_y"] = -1e9, -1e9, 1e9
    track["high_x"], track["x"] = 2.1, 1.0
    before = belief.copy()
    _rule_out(belief, CELL, track, 0.6)
    x = CELL * (np.arange(len(belief)) - REACH)
    assert belief.sum() == pytest.approx(1.0)
    assert (belief[:, x > 2.1] == 0.0).all()
    assert belief[REACH, REACH + 2] < 0.01 * before[REACH, REACH + 2]
    far = np.ix_(np.abs(x) > 3.0, x < -1.0)
    np.testing.assert_allclose(belief[far] / belief[far].sum(), before[far] / before[far].sum())


def test_the_prior_is_a_fan_about_upwind():
    belief = np.zeros((41, 41))
    _prior(belief, 0.5, 3.0, 8.0, math.pi / 2, 0.4)
    y, x = np.mgrid[-20:21, -20:21] * 0.5
    mean = SimpleNamespace(x=(belief * x).sum(), y=(belief * y).sum())
    assert belief.sum() == pytest.approx(1.0)
    assert mean.x == pytest.approx(0.0, abs=1e-9)
    assert mean.y > 3.0
    assert belief[np.hypot(x, y) < 1.5].sum() < 0.02
