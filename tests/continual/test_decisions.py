"""What a trial is decided by, at and just beyond every threshold."""

import json

import pytest
import torch

import gpf
from gpf.continual.decisions import Continued, FalseAlarm, NewPath, Recalled, TrialBegun
from gpf.continual.recall import Recall, Settings, Trial, Version, copied
from gpf.network.checkpoints.state import capture
from gpf.network.growth import Plateau

pytestmark = pytest.mark.usefixtures("one_torch_thread")
BEFORE, ONCE = 0.5, 0.4
"""What the network reached before the trial, and version 3 when it was kept."""


def on_trial(**changes):
    """A network that has fallen from 0.5, next to version 3, which once was at 0.4; the next epoch decides."""
    torch.manual_seed(0)
    model = gpf.MLP(4, 8, 2, 1)
    net = gpf.attach(model, torch.optim.Adam(model.parameters()), rules=gpf.Rules.continual(max_depth=2))
    recall = Recall(net, lambda depth: gpf.MLP(4, 8, 2, depth), Settings(head_start=0, trial=1, window=2, **changes))
    recall.versions = {3: Version(copied(capture(net)), ONCE, 10, used=1)}
    recall.current, recall.made, recall.epoch, recall.expected = 5, 6, 20, 0.45
    recall.counts = [(500.0, 1000.0)] * 10
    recall.trial = Trial([3], BEFORE, [0.0] * 2, [0.0] * 2)
    net.plateau = Plateau(since=1.0)
    return recall


def decide(recall, now, found):
    """Rates of so few steps that chance explains every difference."""
    (decision,) = recall.after_trial([4 * now, 4 * found], [4.0, 4.0])
    return decision


@pytest.mark.parametrize(
    ("now", "found", "decision"),
    [
        (0.1, 0.2, Recalled(version=3, rate=0.2, before=ONCE)),  # half of what it was: recognised
        (0.1, 0.19, Continued(rate=0.1, before=BEFORE)),
        (0.25, 0.3, Recalled(version=3, rate=0.3, before=ONCE)),  # 1.2 times as good as the network
        (0.26, 0.3, FalseAlarm(rate=0.26, before=BEFORE)),
        (0.25, 0.0, FalseAlarm(rate=0.25, before=BEFORE)),  # half of what it was
        (0.24, 0.0, Continued(rate=0.24, before=BEFORE)),
        (0.0625, 0.05, Continued(rate=0.0625, before=BEFORE)),  # an eighth: useful
        (0.06, 0.05, Recalled(version=3, rate=0.05, before=ONCE)),
        (0.06, 0.045, NewPath(version=6, rate=0.06, before=ONCE)),
        (0.01, 0.045, NewPath(version=6, rate=0.045, before=ONCE)),
    ],
)
def test_a_trial_is_decided_by_its_rates(now, found, decision):
    assert decide(on_trial(useful=0.125), now, found) == decision


@pytest.mark.parametrize(
    ("now", "found", "decision"),
    [
        (0.01, 0.02, Recalled(version=3, rate=0.02, before=ONCE)),
        (0.02, 0.02, Continued(rate=0.02, before=BEFORE)),
        (0.02, 0.01, Continued(rate=0.02, before=BEFORE)),
    ],
)
def test_without_growing_the_better_of_two_useless_ones_learns_on(now, found, decision):
    assert decide(on_trial(useful=0.125, grow=False), now, found) == decision


@pytest.mark.parametrize(
    ("now", "found", "current", "made", "expected", "counts", "used"),
    [
        (0.1, 0.2, 3, 6, ONCE, 0, 21),  # recalled
        (0.2, 0.0, 5, 6, BEFORE, 0, 1),  # continued
        (0.3, 0.0, 5, 6, BEFORE, 8, 1),  # a false alarm: all is known but what caused it, a window of 2
        (0.0, 0.0, 6, 7, None, 0, 1),  # a new path
    ],
)
def test_what_a_decision_leaves_behind(now, found, current, made, expected, counts, used):
    recall = on_trial()
    decide(recall, now, found)
    assert (recall.current, recall.made, recall.expected) == (current, made, expected)
    assert len(recall.counts) == counts
    assert recall.versions[3].used == used
    assert (recall.epoch, recall.since, recall.trial) == (21, 21, None)
    assert recall.net.plateau == Plateau()


@pytest.mark.parametrize(
    ("successes", "candidates", "over"),
    [
        ([6.25, 0.0], [], True),  # 2.5 standard deviations of the difference
        ([6.2, 0.0], [7], False),
        ([0.0, 6.25], [7], True),  # the network stays in the trial, but nothing is left to find out
        ([0.0, 0.0], [7], False),
    ],
)
def test_a_candidate_is_out_at_two_and_a_half_standard_deviations(successes, candidates, over):
    trial = Trial([7], 0.5, successes, [1.0, 1.0])
    assert trial.drop_the_worse() == over
    assert trial.candidates == candidates
    assert len(trial.tried) == len(trial.successes) == 1 + len(candidates)


def test_a_decision_is_logged_with_its_kind_its_numbers_and_a_sentence():
    decisions = [
        TrialBegun(candidates=1, rate=0.1, before=0.5), Recalled(version=3, rate=0.4, before=0.5),
        Continued(rate=0.1, before=0.5), FalseAlarm(rate=0.4, before=0.5), NewPath(version=4, rate=0.01, before=0.5),
    ]  # fmt: skip
    lines = [json.loads(json.dumps(decision.to_json())) for decision in decisions]
    assert [line["kind"] for line in lines] == ["trial", "recalled", "continued", "false-alarm", "new-path"]
    assert lines[0] == {
        "kind": "trial", "candidates": 1, "rate": 0.1, "before": 0.5,
        "reason": "tries 1 kept version, because the rate fell from 0.5 to 0.1",
    }  # fmt: skip
    assert all(line["reason"] == str(decision) for line, decision in zip(lines, decisions, strict=True))
    assert [line.get("version") for line in lines] == [None, 3, None, None, 4]
