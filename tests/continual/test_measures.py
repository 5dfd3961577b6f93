"""The measures of a stream against examples worked by hand."""

import numpy as np
import pytest

from gpf.continual import measures


def visit(regime, ended, found, first=(0, 1), last=(1, 1)):
    return {"regime": regime, "ended": ended, "found": found, "first": first, "first_whole": first, "last": last}


def test_the_area_is_the_mean_over_visits_whatever_their_length():
    assert measures.area([visit("a", [50, 50], [0, 50]), visit("b", [10], [10])]) == pytest.approx((0.5 + 1.0) / 2)


def test_forgetting_by_hand():
    """a ends at 0.9 and comes back at 0.3; b ends at 0.8 and comes back at 0.6; c never comes back."""
    stream = [
        visit("a", [1], [1], (0, 10), (9, 10)),
        visit("b", [1], [1], (2, 10), (8, 10)),
        visit("a", [1], [1], (3, 10), (7, 10)),
        visit("c", [1], [1], (0, 10), (5, 10)),
        visit("b", [1], [1], (6, 10), (9, 10)),
    ]
    assert measures.forgetting(stream) == pytest.approx((0.6 + 0.2) / 2)
    assert measures.forgetting(stream[:2]) is None
    again = [*stream, visit("a", [1], [1], (4, 10), (9, 10))]  # since the visit before, where it ended at 0.7
    assert measures.forgetting(again) == pytest.approx((0.6 + 0.2 + 0.3) / 3)
    stream[2]["first_whole"] = (8, 10)
    assert measures.forgetting(stream, "first_whole") == pytest.approx((0.1 + 0.2) / 2)
    stream[2]["first_whole"] = (0, 0)  # nothing is known of it
    assert measures.forgetting(stream, "first_whole") == pytest.approx(0.2)


def test_recovery_by_hand():
    """A fresh learner ends at 0.8, so 0.72 of the latest 100 will do: reached after 250 episodes, or never."""
    fresh = [visit("a", [1], [1]), visit("b", [1], [1], last=(8, 10)), visit("c", [1], [1], last=(8, 10))]
    ours = [
        visit("a", [100], [100]),
        visit("b", [50] * 6, [0, 10, 20, 30, 42, 50]),  # 30 + 42 of 100 after 250
        visit("c", [50] * 4, [10] * 4),
    ]
    assert measures.recovery(ours, fresh) == pytest.approx((250 + 200) / 2)


def test_a_recovery_needs_a_hundred_episodes():
    fresh = [visit("a", [1], [1]), visit("b", [1], [1], last=(1, 1))]
    assert measures.recovery([visit("a", [1], [1]), visit("b", [60, 60, 60], [60, 60, 60])], fresh) == 120.0


def test_a_recovery_is_seen_in_the_latest_hundred_episodes_and_no_fewer():
    fresh = [visit("a", [1], [1]), visit("b", [1], [1], last=(1, 1))]
    for ended, found, wanted in [
        ([100, 100], [90, 100], 100.0),  # a hundred will do
        ([99, 100], [99, 80], 199.0),  # 99 will not; then 80 of the latest 100
        ([20, 100, 100], [0, 90, 100], 120.0),  # what lies further back does not count
        ([20, 99, 99], [0, 99, 89], 218.0),  # 99 of the latest 99 would be enough, 99 of 119 is not
    ]:
        got = measures.recovery([visit("a", [1], [1]), visit("b", ended, found)], fresh)
        assert got == wanted, (ended, found)


def test_transfer_counts_first_visits_but_the_very_first():
    fresh = [visit(name, [10], [found]) for name, found in (("a", 5), ("b", 5), ("a", 5), ("c", 5))]
    ours = [visit(name, [10], [found]) for name, found in (("a", 9), ("b", 7), ("a", 10), ("c", 4))]
    assert measures.transfer(ours, fresh) == pytest.approx((0.2 - 0.1) / 2)
    fresh, ours = [*fresh, visit("b", [10], [5])], [*ours, visit("b", [10], [10])]  # not for the first time
    assert measures.transfer(ours, fresh) == pytest.approx((0.2 - 0.1) / 2)
    assert measures.transfer(ours[:1], fresh[:1]) is None


def test_another_stream_is_no_standard():
    with pytest.raises(ValueError, match=r"^fresh must be visits to the same regimes"):
        measures.recovery([visit("a", [1], [1])], [visit("b", [1], [1])])


def test_the_curve_holds_every_success():
    stream = [visit("a", [3, 7, 10], [0, 7, 5]), visit("b", [4], [1])]
    values = measures.curve(stream, points=10)
    assert values.shape == (20,)
    np.testing.assert_allclose(values.reshape(2, 10).mean(axis=1), [12 / 20, 1 / 4])
