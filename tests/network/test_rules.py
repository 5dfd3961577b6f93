"""Each rule against a worked example, one per equation of the paper."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gpf.network import belief, freezing, growth, pruning
from gpf.network.rules import Rules, batch_size


@pytest.mark.parametrize(
    ("window", "grows"),
    [
        ([0.50, 0.4995, 0.4992], True),  # best 0.4992: improved by 0.0008
        ([0.50, 0.4985, 0.52], False),  # best 0.4985: improved by 0.0015
        ([0.50, 0.51], False),  # not as long as patience
        ([0.60, 0.70, 0.80], True),  # got worse
    ],
)
def test_growth_of_a_loss_by_hand(window, grows):
    """Eq. 1: 0.5 before; three epochs; an improvement counts from 0.001."""
    assert growth.plateaued(0.5, window, patience=3, threshold=1e-3, mode="min") is grows


def test_growth_of_a_success_rate_by_hand():
    assert growth.improvement(0.90, [0.85, 0.93, 0.91], "max") == pytest.approx(0.03)
    assert growth.plateaued(0.90, [0.85, 0.93, 0.91], 3, 0.05, "max")
    assert not growth.plateaued(0.90, [0.85, 0.96, 0.91], 3, 0.05, "max")


def test_growth_needs_something_to_compare_with():
    assert not growth.plateaued(None, [1.0] * 10, 3, 1e-3, "min")


def test_belief_by_hand():
    """Eq. 2: h + 0.25 where abs(w) > 0.5; after five epochs it has reached its end below 1."""
    weight = torch.tensor([[0.6, -0.7, 0.5, 0.1]])
    h = torch.zeros(1, 4)
    h = belief.raised(h, weight, threshold=0.5, increment=0.25)
    assert h.tolist() == [[0.25, 0.25, 0.0, 0.0]]
    for _ in range(4):
        h = belief.raised(h, weight, 0.5, 0.25)
    assert h[0, 0] == h[0, 1] == belief.HIGHEST < 1.0
    assert h[0, 2:].tolist() == [0.0, 0.0]


def test_belief_of_active_units_by_hand():
    """A unit that fires raises belief in all weights into it, small ones too."""
    weight = torch.tensor([[0.01, 0.02], [0.9, 0.03]])
    active = torch.tensor([[True], [False]])
    assert belief.raised(torch.zeros(2, 2), weight, 0.1, 0.5, active).tolist() == [[0.5, 0.5], [0.5, 0.0]]


def test_pruning_by_hand():
    """Eq. 3: belief below 0.3 and magnitude below 0.1, both."""
    weight = torch.tensor([0.05, -0.05, 0.2, -0.2])
    h = torch.tensor([0.1, 0.4, 0.1, 0.4])
    assert pruning.prunable(h, pruning.saliency(weight, "magnitude"), 0.3, 0.1).tolist() == [True, False, False, False]


def test_the_cheapest_of_all_tensors_by_hand():
    costs = [torch.tensor([[0.3, 0.1], [0.5, 0.2]]), torch.tensor([0.05, 0.2, 0.4])]
    masks = pruning.cheapest(costs, 3)
    assert [mask.tolist() for mask in masks] == [[[False, True], [False, True]], [True, False, False]]
    assert not any(mask.any() for mask in pruning.cheapest(costs, 0))
    assert all(mask.all() for mask in pruning.cheapest(costs, 7))
    assert pruning.cheapest([], 0) == []


@given(
    seed=st.integers(0, 2**31),
    sizes=st.lists(st.integers(1, 60), min_size=1, max_size=4),
    share=st.floats(0.0, 1.0),
    with_masks=st.booleans(),
)
@settings(max_examples=200, deadline=None)
def test_the_cheapest_are_those_that_a_stable_sort_puts_first(seed, sizes, share, with_masks):
    generator = np.random.default_rng(seed)
    costs = [generator.choice([-2.0, -1e-30, 0.0, 1e-3, 1.0, 3e30], size) for size in sizes]  # many equals
    gone = [generator.random(size) < 0.3 for size in sizes]
    count = round(share * sum(sizes))
    keys = np.abs(np.concatenate(costs)).astype(np.float32)
    if with_masks:
        keys[np.concatenate(gone)] = -1.0
    expected = np.zeros(len(keys), dtype=bool)
    expected[np.argsort(keys, kind="stable")[:count]] = True
    masks = pruning.cheapest(
        [torch.tensor(cost) for cost in costs], count, [torch.tensor(mask) for mask in gone] if with_masks else None
    )
    assert np.concatenate([mask.numpy() for mask in masks]).tolist() == expected.tolist()


def test_optimal_brain_damage_by_hand():
    """w^2 E[g^2] / 2: 0.3^2 x 0.04 / 2 = 0.0018."""
    weight, mean_square = torch.tensor([0.3, -2.0]), torch.tensor([0.04, 0.5])
    assert pruning.saliency(weight, "obd", mean_square).tolist() == pytest.approx([0.0018, 1.0])
    with pytest.raises(ValueError, match="^saliency 'obd' needs gradients"):
        pruning.saliency(weight, "obd")


def test_stillness_by_hand():
    """Eq. 4: of four weights, one moved by 0.5; of the three that are not pruned, it is one too."""
    before, after = torch.tensor([1.0, 2.0, 3.0, 0.0]), torch.tensor([1.005, 2.0, 3.5, 0.0])
    assert freezing.still_share([(before, after, None)], delta=0.01) == 0.75
    pruned = torch.tensor([False, False, False, True])
    assert freezing.still_share([(before, after, pruned)], delta=0.01) == pytest.approx(2 / 3)
    assert freezing.still_share([(before, after, torch.ones(4, dtype=torch.bool))], delta=0.01) == 1.0


def test_batch_size_by_hand():
    """128 exp(-0.5 x 1.2) = 70.25."""
    assert batch_size(128, 1.2, 0.5) == 70
    assert batch_size(128, 1.2, 0.0) == 128
    assert batch_size(8, 100.0, 1.0) == 1


def test_presets_have_the_papers_values():
    plume, classifier = Rules.plume(), Rules.classifier()
    assert (plume.warmup, plume.grow_patience, plume.prune_patience, plume.freeze_patience) == (0, 1000, 500, 3000)
    assert (plume.grow_threshold, plume.belief_threshold, plume.freeze_delta) == (1e-3, 1e-6, 0.01)
    assert plume.belief_increment == 1 / 4500
    assert plume.max_depth == 4
    assert (classifier.warmup, classifier.grow_patience) == (7, 5)
    assert (classifier.prune_patience, classifier.freeze_patience) == (2, 7)
    assert (classifier.weight_threshold, classifier.activation_threshold) == (0.1, 0.1)
    assert (classifier.belief_threshold, classifier.freeze_delta, classifier.batch_decay) == (0.5, 0.1, 0.5)
    assert Rules.plume(max_depth=2).max_depth == 2


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"grow_patience": 0}, "grow_patience must be a whole number of at least 1, got 0"),
        ({"grow_patience": 2.5}, "grow_patience must be a whole number of at least 1, got 2.5"),
        ({"warmup": -1}, "warmup must be a whole number of at least 0, got -1"),
        ({"warmup": None}, "warmup must be a whole number of at least 0, got None"),
        ({"grow_threshold": math.nan}, "grow_threshold must be a finite number of at least 0, got nan"),
        ({"mode": "best"}, "mode must be one of min, max, got 'best'"),
        (
            {"grow_init": "zero"},
            "grow_init must be one of identity, gated, kaiming, copy, built, stack, interleave, got 'zero'",
        ),
        ({"saliency": "taylor"}, "saliency must be one of magnitude, obd, got 'taylor'"),
        ({"freeze_fraction": 0.0}, "freeze_fraction must be above 0 and at most 1, got 0.0"),
        ({"freeze_fraction": 1.1}, "freeze_fraction must be above 0 and at most 1, got 1.1"),
        ({"grow_undoable": 1}, "grow_undoable must be True or False, got 1"),
    ],
)
def test_errors_name_field_value_and_what_is_accepted(values, message):
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the message is compared whole
        Rules(**values)
    assert str(error.value) == message


def test_belief_that_falls_by_hand():
    """It rises by 0.2 where abs(w) > 0.5, falls by 0.1 elsewhere, and stays within 0 and 1."""
    weight, h = torch.tensor([[0.6, 0.1, 0.1]]), torch.tensor([[0.3, 0.3, 0.05]])
    torch.testing.assert_close(belief.raised(h, weight, 0.5, 0.2, None, 0.1), torch.tensor([[0.5, 0.2, 0.0]]))


def test_a_drop_by_hand():
    assert growth.dropped(0.35, 0.8, 0.5, "max")
    assert not growth.dropped(0.45, 0.8, 0.5, "max")
    assert growth.dropped(2.1, 1.0, 0.5, "min")
    assert not growth.dropped(1.9, 1.0, 0.5, "min")
    assert not growth.dropped(0.0, None, 0.5, "max")


@pytest.mark.parametrize("share", [0.0, 1.0, 1.5])
def test_a_drop_to_more_than_all_or_less_than_nothing_is_refused(share):
    with pytest.raises(ValueError, match=r"^drop must be above 0 and below 1, or None, got "):
        Rules(drop=share)


def test_what_counts_at_the_threshold_itself():
    """An improvement by the threshold is one; a drop, a belief, a cost and a move have to be beyond theirs."""
    for mode, before, window in (("min", 1.0, [0.75, 0.9]), ("max", 1.0, [1.25, 1.1])):
        assert not growth.plateaued(before, window, patience=2, threshold=0.25, mode=mode)
        assert growth.plateaued(before, window, patience=2, threshold=0.2501, mode=mode)
        trial = growth.Plateau(since=window[0], at_growth=before)
        assert not trial.trial_failed(Rules(grow_threshold=0.25, mode=mode))
        assert trial.trial_failed(Rules(grow_threshold=0.2501, mode=mode))
    assert not growth.dropped(0.5, 1.0, 0.5, "max")
    assert not growth.dropped(2.0, 1.0, 0.5, "min")
    one = torch.tensor([0.25])
    assert not pruning.prunable(one, one, 0.25, 0.5).item()
    assert not pruning.prunable(one, one, 0.5, 0.25).item()
    assert freezing.still_share([(torch.zeros(1), one, None)], delta=0.25) == 0.0


def test_the_peak_is_a_mean_over_whole_windows_and_outlives_a_growth():
    """9, 1, 1, 1, 1 in windows of 3: the best mean is 11 / 3, and 1 has dropped below half of that, not before."""
    rules, plateau, fell = Rules(drop=0.5, drop_window=3, mode="max"), growth.Plateau(), []
    for metric in (9.0, 1.0, 1.0, 1.0, 1.0):
        plateau = plateau.after(metric, rules, warm=True)
        fell.append(plateau.fallen(rules))
    assert plateau.peak == pytest.approx(11 / 3)
    assert fell[:3] == [None, None, None]
    assert fell[3:] == ["the metric fell to 1 from 3.67, its best"] * 2
    assert (
        plateau.restarted(rules).after(1.0, rules, warm=True).fallen(rules)
        == "the metric fell to 1 from 3.67, its best"
    )


def test_a_loss_that_drops_off_is_said_to_rise():
    rules, plateau = Rules(drop=0.5, drop_window=1, mode="min"), growth.Plateau()
    for loss in (1.0, 3.0):
        plateau = plateau.after(loss, rules, warm=True)
    assert plateau.fallen(rules) == "the metric rose to 3 from 1, its best"


@pytest.mark.parametrize("name", ["warmup", "grow_patience", "grow_threshold", "freeze_fraction"])
def test_truth_values_are_no_numbers(name):
    with pytest.raises(ValueError, match=f"^{name} must be .*, got True$"):
        Rules(**{name: True})


def test_a_whole_layer_may_be_asked_to_hold_still():
    assert Rules(freeze_fraction=1.0).freeze_fraction == 1.0
