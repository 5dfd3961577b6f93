import math

import numpy as np
import pytest
from scipy.special import k0
from scipy.stats import poisson

from gpf.navigation.opponents.grid_task import (
    POLICIES,
    GridTask,
    _scratch,
    best_move,
    move_score,
    search,
    update,
)
from gpf.navigation.opponents.scores import INFOTAXIS, SPACE_AWARE
from gpf.plume.kernels import kernel

PLANE, LINE = GridTask(2, 1.5, 2.0, 7), GridTask(1, 2.0, 2.0, 9)


@kernel
def _update(tables, belief, row, column, hits):
    update(tables, belief, row, column, hits)


@kernel
def _score(tables, rule, belief, logs, row, column):
    return move_score(tables, rule, belief, logs, row, column)


@kernel
def _best(tables, rule, belief, logs, row, column):
    return best_move(tables, rule, belief, logs, row, column)


def likelihood(task, hits, agent, source):
    """Of so many hits, by the definition: Poisson with the mean of the task, the last category for so many or more."""
    d = math.dist(agent, source)
    if d == 0.0:
        return 0.0
    if task.dimensions == 1:
        mean = task.intensity * 2 * task.dispersion / (2 * task.dispersion - 1) * math.exp(-d / task.dispersion)
    else:
        mean = task.intensity * k0(d / task.dispersion) / math.log(2 * task.dispersion)
    return poisson(mean).pmf(hits) if hits < task.outcomes - 1 else poisson(mean).sf(hits - 1)


def cells(task):
    return [(i, j) for i in range(1 if task.dimensions == 1 else task.size) for j in range(task.size)]


def random_belief(task, seed=0):
    belief = np.random.default_rng(seed).dirichlet(np.full(len(cells(task)), 0.3)).reshape(-1, task.size)
    return np.ascontiguousarray(belief)


def enumerated_score(task, rule, belief, agent):
    """The expected score of a move: every outcome, its posterior, entropy and mean Manhattan distance, one by one."""
    score = 0.0
    for hits in range(task.outcomes):
        weights = {cell: belief[cell] * likelihood(task, hits, agent, cell) for cell in cells(task)}
        total = sum(weights.values())
        posterior = [w / total for w in weights.values()]
        entropy = -sum(p * math.log2(p) for p in posterior if p > 0.0)
        far = sum(p * (abs(i - agent[0]) + abs(j - agent[1])) for p, (i, j) in zip(posterior, weights, strict=True))
        value = entropy if rule == INFOTAXIS else math.log2(far + 2 ** (entropy - 1) - 0.5)
        score += total * value
    return score


@pytest.mark.parametrize("task", [PLANE, LINE])
def test_bayes_rule_is_that_of_an_enumeration(task):
    belief, agent = random_belief(task), (0 if task.dimensions == 1 else 2, 3)
    for hits in range(task.outcomes):
        wanted = np.array([belief[cell] * likelihood(task, hits, agent, cell) for cell in cells(task)])
        found = belief.copy()
        _update(task.tables(), found, *agent, hits)
        np.testing.assert_allclose(found.ravel(), wanted / wanted.sum(), rtol=1e-9, atol=1e-300)


@pytest.mark.parametrize("task", [PLANE, LINE])
@pytest.mark.parametrize("rule", [INFOTAXIS, SPACE_AWARE])
def test_expected_scores_are_those_of_an_enumeration(task, rule):
    belief, logs = random_belief(task, 1), _scratch(task)[1]
    agent = (0 if task.dimensions == 1 else 3, 4)
    move = _best(task.tables(), rule, belief, logs, *agent)
    moves = {0: (0, -1), 1: (0, 1)} | ({} if task.dimensions == 1 else {2: (-1, 0), 3: (1, 0)})
    wanted = {
        name: enumerated_score(task, rule, belief, (agent[0] + i, agent[1] + j)) for name, (i, j) in moves.items()
    }
    for name, (i, j) in moves.items():
        found = _score(task.tables(), rule, belief, logs, agent[0] + i, agent[1] + j)
        assert found == pytest.approx(wanted[name], abs=1e-9)
    assert move == min(wanted, key=wanted.get)


def test_a_mirrored_belief_gives_the_mirrored_move():
    for seed in range(10):
        belief = random_belief(PLANE, seed)
        moves = [
            _best(PLANE.tables(), SPACE_AWARE, np.ascontiguousarray(some), _scratch(PLANE)[1], 3, 3)
            for some in (belief, belief[:, ::-1], belief[::-1], belief.T)
        ]
        one = moves[0]
        assert moves[1:] == [[1, 0, 2, 3][one], [0, 1, 3, 2][one], [2, 3, 0, 1][one]]


def test_the_first_hits_follow_the_rings_around_the_source():
    first = PLANE.first_hits()
    radius = np.arange(1, int(1000 * PLANE.dispersion))
    weights = [sum(likelihood(PLANE, h, (0, 0), (0, r)) * 2 * math.pi * r for r in radius[:60]) for h in range(1, 4)]
    assert first[0] == 0.0
    np.testing.assert_allclose(first[1:4], np.array(weights) / sum(weights), rtol=1e-6)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_grid_of_three_cells_is_solved_exactly(policy):
    """The source is left or right with equal probability, and so is a hit: the first step finds it, or the third."""
    result = search(GridTask(1, 2.0, 2.0, 3), policy, 50)
    assert result.mean == pytest.approx(2.0)
    assert result.found == pytest.approx(1.0)


def test_runs_have_streams_of_their_own():
    """Two halves of some runs are not the same, and the same seed gives the same numbers."""
    task = GridTask(1, 2.0, 2.0, 33)
    assert search(task, "thompson", 100, 3) == search(task, "thompson", 100, 3)
    assert search(task, "thompson", 100, 3) != search(task, "thompson", 100, 4)


def test_arrival_times_on_a_line_are_those_of_otto():
    """Mean and half-width of the 95 % interval of OTTO's own code: 7.22 +- 0.22."""
    ours = search(GridTask(1, 2.0, 2.0, 33), "space-aware-infotaxis", 2000, 5)
    assert abs(ours.mean - 7.22) < math.hypot(0.22, ours.error) * 1.5
    assert ours.error == pytest.approx(0.22, rel=0.1)
    slow = search(GridTask(1, 2.0, 2.0, 33), "infotaxis", 2000, 5)
    assert abs(slow.mean - 13.08) < math.hypot(0.42, slow.error) * 1.5


@pytest.mark.parametrize(
    ("changes", "named"),
    [({"size": 4}, "size must be odd"), ({"dimensions": 3}, "dimensions"), ({"dispersion": 0.5}, "dispersion"),
     ({"intensity": 0.0}, "intensity")],
)  # fmt: skip
def test_an_impossible_task_is_refused(changes, named):
    with pytest.raises(ValueError, match=named):
        GridTask(**{"dimensions": 2, "dispersion": 1.0, "intensity": 2.0, "size": 19, **changes})


def test_an_unknown_agent_is_refused():
    with pytest.raises(ValueError, match="^unknown policy 'infotaxi'; did you mean 'infotaxis'"):
        search(LINE, "infotaxi", 1)
