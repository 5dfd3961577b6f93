"""The value of a move for a searcher that keeps a belief: the scores of infotaxis and of space-aware infotaxis.

A move has outcomes, which split the belief p into joint weights w = p L of each outcome's likelihood L. Three sums over
the places where the source may be are enough for a score: the mass sum w, sum w log2 w, and sum w d of the distances d.
"""

import math

from gpf.plume.kernels import device

INFOTAXIS, SPACE_AWARE = 0, 1
"""Rules by which a move is scored; the lowest score is best."""
NOTHING = 1e-10
"""Probability below which an outcome does not count."""


@device
def outcome_score(rule: int, mass: float, weighted_log: float, weighted_distance: float) -> float:
    """The share of one outcome in the expected score of a move.

    Args:
        rule: INFOTAXIS or SPACE_AWARE.
        mass: Sum of the joint weights w, the probability of the outcome.
        weighted_log: Sum of w log2 w.
        weighted_distance: Sum of w times the distance from where the move ends, steps.
    """
    if mass <= NOTHING:
        return 0.0
    entropy = math.log2(mass) - weighted_log / mass
    if rule == INFOTAXIS:
        return mass * entropy
    return mass * effort(weighted_distance / mass, entropy)


@device
def effort(distance: float, entropy: float) -> float:
    """J of Loisy & Eloy (2022): log2 of the steps to come, from the mean distance, steps, and the entropy, bits."""
    steps = distance + 2.0 ** (entropy - 1.0) - 0.5
    return math.log2(steps) if steps > 0.0 else steps
