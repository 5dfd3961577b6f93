"""What is kept, tried and recalled, with a world of two lines: rates of success are whatever the test says."""

import dataclasses
import json

import pytest
import torch

import gpf
from gpf.continual.decisions import Continued, FalseAlarm, NewPath, Recalled, TrialBegun
from gpf.continual.recall import Recall, Settings, copied, prune_snapshot
from gpf.network.checkpoints.state import capture

pytestmark = pytest.mark.usefixtures("one_torch_thread")
SETTINGS = Settings(interval=2, settled=3, trial=4, drop=0.5, keep=0.5, budget=10_000)
STEPS = 1000.0


def fresh(depth):
    return gpf.MLP(4, 8, 2, depth)


def made(**changes):
    torch.manual_seed(0)
    model = fresh(1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    rules = gpf.Rules.continual(max_depth=2, grow_patience=None, prune_patience=None, freeze_patience=None, drop=None)
    net = gpf.attach(model, optimizer, rules=rules)
    values = {**vars(SETTINGS), **changes}
    return Recall(net, fresh, Settings(**values))


def learn_once(recall):
    loss = recall.net.model(torch.randn(16, 4)).square().mean()
    recall.net.optimizer.zero_grad()
    loss.backward()
    recall.net.optimizer.step()


def learn(recall, epochs=1, rate=0.5):
    """Let the network learn something, with this rate of success."""
    decisions = []
    for _ in range(epochs):
        learn_once(recall)
        decisions += recall.after_epoch(rate * STEPS, STEPS)
    return decisions


def drop(recall):
    decisions = []
    while recall.trial is None:
        decisions += learn(recall, rate=0.0)
    return decisions


def try_out(recall, rates):
    """Let candidates, by their number, have these rates until it is decided."""
    decisions = []
    while recall.trial is not None:
        assert len(recall.others()) == len(recall.trial.candidates)
        tried = [None, *recall.trial.candidates]
        steps = STEPS / len(tried)
        decisions += recall.after_trial([rates[number] * steps for number in tried], [steps] * len(tried))
    return decisions


def outputs(recall):
    with torch.no_grad():
        return recall.net.model(torch.linspace(-1, 1, 12).view(3, 4)).clone()


def test_steady_success_changes_nothing():
    recall = made()
    assert learn(recall, 20) == []
    assert recall.versions.keys() == {0}  # a copy of what does well
    assert (recall.current, recall.net.depth) == (0, 1)


def test_a_drop_that_chance_explains_is_no_drop():
    recall = made()
    for _ in range(10):
        recall.after_epoch(4, STEPS)
    assert recall.after_epoch(1, STEPS) == []
    assert recall.after_epoch(1, STEPS) == []  # 2 of 8: below half, but within four deviations


def test_where_success_scatters_a_fall_has_to_last_longer():
    steady, unsteady = made(settled=6), made(settled=6)
    for n in range(12):
        steady.after_epoch(10, STEPS)
        unsteady.after_epoch(8 if n % 2 else 12, STEPS)  # scatters less than chance does
    assert steady.after_epoch(0, STEPS) == unsteady.after_epoch(0, STEPS) == []  # 10 - 4 * 10 ** 0.5 < 0
    assert steady.after_epoch(0, STEPS) != []  # 20 - 4 * 20 ** 0.5 = 2.1
    assert unsteady.after_epoch(0, STEPS) != []
    unsteady = made(settled=6)
    for n in range(12):
        unsteady.after_epoch(0 if n % 2 else 20, STEPS)  # ten times as much variance: 10 n - 4 * (100 n) ** 0.5
    for _ in range(8):
        assert unsteady.after_epoch(0, STEPS) == []


def test_what_does_well_is_kept_as_it_was_but_for_pruned_weights():
    recall = made(keep=1.0)
    learn(recall, 6)  # a copy every other epoch
    before = outputs(recall)
    drop(recall)  # learns on for a moment in a world that has changed
    kept = recall.versions[0]
    assert (kept.rate, kept.parameters) == (pytest.approx(0.5), recall.net.count_parameters())
    assert not torch.equal(outputs(recall), before)
    recall._recalled(0, 0.5)
    torch.testing.assert_close(outputs(recall), before, rtol=0, atol=0)


def test_versions_on_trial_are_what_was_kept_and_the_network_as_it_is_does_not_notice():
    recall = made(keep=1.0)
    learn(recall, 6)
    good = outputs(recall)
    drop(recall)
    try_out(recall, {None: 0.0})
    learn(recall, 6)
    drop(recall)
    before, moments = outputs(recall), [s["exp_avg"].clone() for s in recall.net.optimizer.state.values()]
    (other,) = recall.others()
    with torch.no_grad():
        torch.testing.assert_close(other(torch.linspace(-1, 1, 12).view(3, 4)), good, rtol=0, atol=0)
    assert torch.equal(outputs(recall), before)
    states = recall.net.optimizer.state.values()
    assert all(torch.equal(s["exp_avg"], m) for s, m in zip(states, moments, strict=True))


def test_what_is_kept_is_pruned_by_saliency_and_what_is_in_use_is_not():
    recall = made(keep=0.25)
    learn(recall, 6)
    (layer,) = recall.net.layers
    weight = layer.weights[0].parameter
    cost = weight.square() * recall.net.optimizer.state[weight]["exp_avg_sq"]
    tensors, _ = recall.versions[0].snapshot
    mask = tensors["layer/0/pruned/linear.weight"]
    assert int(mask.sum()) == 24  # three quarters of 4 x 8
    assert cost[mask].max() <= cost[~mask].min()
    for name in ("model/layers.0.linear.weight", "optimizer/layers.0.linear.weight/exp_avg"):
        assert not tensors[name][mask].any()
        assert tensors[name][~mask].all()
    assert recall.versions[0].parameters == recall.net.count_parameters() - 24
    assert recall.parameters == 2 * recall.net.count_parameters() - 24
    assert recall.net.shape().pruned == 0
    drop(recall)
    recall._recalled(0, 0.5)
    assert int((weight == 0).sum()) == 24
    learn_once(recall)
    assert int((weight == 0).sum()) < 24  # what was pruned grows again, but for units without any weight
    assert recall.versions[0].parameters == recall.parameters - recall.net.count_parameters()


def test_where_nothing_is_of_use_a_new_path_grows_and_what_was_kept_comes_back():
    recall = made(keep=1.0)
    learn(recall, 6)
    good = outputs(recall)
    assert drop(recall) == [TrialBegun(candidates=0, rate=0.0, before=0.5)]
    assert try_out(recall, {None: 0.0}) == [NewPath(version=1, rate=0.0, before=0.5)]
    assert (recall.current, recall.net.depth, recall.net.shape().pruned) == (1, 2, 0)
    assert not recall.net.optimizer.state  # it remembers no gradients
    learn(recall, 6, rate=0.4)
    drop(recall)
    assert try_out(recall, {None: 0.0, 0: 0.3}) == [Recalled(version=0, rate=0.3, before=0.5)]
    assert (recall.current, recall.net.depth) == (0, 1)
    torch.testing.assert_close(outputs(recall), good, rtol=0, atol=0)
    learn(recall, 3)  # and learns on


def test_whoever_still_does_well_goes_on():
    recall = made()
    learn(recall, 20)
    drop(recall)
    now = recall.net.model.head.bias.clone()
    assert try_out(recall, {None: 0.4}) == [FalseAlarm(rate=0.4, before=0.5)]
    assert recall.best() == pytest.approx(0.5)  # it still knows what to expect
    assert torch.equal(recall.net.model.head.bias, now)
    assert recall.current == 0


def test_whoever_lags_far_behind_is_out_and_a_trial_ends_when_one_is_left():
    recall = made(trial=8, useful=0.01)
    for _ in range(3):  # four versions
        learn(recall, 6)
        drop(recall)
        try_out(recall, dict.fromkeys([None, *range(9)], 0.0))
    learn(recall, 6)
    drop(recall)
    assert recall.trial.candidates == [0, 1, 2]
    for _ in range(2):  # does not count
        recall.after_trial([50.0, 0.0, 0.0, 0.0], [STEPS] * 4)
    assert recall.trial.candidates == [0, 1, 2]
    recall.after_trial([1.0, 4.0, 8.0, 1.0], [STEPS] * 4)  # 7 of 9 successes more: 7 / 3 standard deviations
    assert recall.trial.candidates == [0, 1, 2]
    recall.after_trial([0.0, 4.0, 0.0, 1.0], [STEPS] * 4)  # 7 of 9 again for one; 6 of 10 for the other
    assert recall.trial.candidates == [0, 1, 2]
    recall.after_trial([0.0, 1.0, 4.0, 1.0], [STEPS] * 4)  # 12, 9, 3, 1: 11 / 13 ** 0.5 and 9 / 15 ** 0.5
    assert (recall.trial.candidates, len(recall.trial.tried)) == ([0, 1, 2], 4)  # the network as it is stays
    recall.after_trial([0.0, 10.0, 12.0, 0.0], [STEPS] * 4)
    assert recall.trial.candidates == [0, 1]
    assert recall.after_trial([0.0, 1.0, 16.0], [STEPS] * 3) == [Recalled(version=1, rate=0.008, before=0.5)]


def test_parameters_stay_within_the_budget_at_every_moment_and_the_least_recently_used_go():
    dense = sum(p.numel() for p in fresh(2).parameters())
    recall = made(budget=3 * dense)

    def counted():
        """From the tensors themselves."""
        snapshots = [version.snapshot[0] for version in recall.versions.values()]
        snapshots.append({f"model/{name}": p for name, p in recall.net.model.named_parameters()})
        return sum(
            tensor.numel() - (int((tensor == 0).sum()) if name.endswith("linear.weight") else 0)
            for tensors in snapshots
            for name, tensor in tensors.items()
            if name.startswith("model/")
        )

    for _ in range(8):
        while recall.trial is None:
            learn(recall, rate=0.5 if len(recall.counts) < 6 else 0.0)
            assert counted() == recall.parameters <= 3 * dense
        while recall.trial is not None:
            count = 1 + len(recall.others())
            recall.after_trial([0.0] * count, [STEPS] * count)
            assert counted() == recall.parameters <= 3 * dense
    assert 0 not in recall.versions
    assert max(recall.versions) == 7


def test_a_version_in_another_world_goes_on_as_a_new_one_and_what_it_was_stays():
    recall = made(useful=0.1)
    learn(recall, 6)
    kept = {name: tensor.clone() for name, tensor in recall.versions[0].snapshot[0].items()}
    drop(recall)
    try_out(recall, {None: 0.1})  # goes on
    learn(recall, 10, rate=0.25)  # and never gets to 0.7 of 0.5
    assert recall.current == 1
    assert recall.versions.keys() == {0, 1}
    drop(recall)
    try_out(recall, {None: 0.0, 0: 0.4})
    learn(recall, 10, rate=0.45)
    assert (recall.current, recall.versions.keys()) == (0, {0, 1})  # that was its world
    assert any(not torch.equal(tensor, recall.versions[0].snapshot[0][name]) for name, tensor in kept.items())


def test_without_growing_the_best_there_is_learns_on_and_without_freezing_nothing_is_kept():
    recall = made(grow=False)
    learn(recall, 6)
    drop(recall)
    assert try_out(recall, {None: 0.0}) == [Continued(rate=0.0, before=0.5)]
    learn(recall, 10, rate=0.25)
    drop(recall)
    assert try_out(recall, {None: 0.0, 0: 0.4}) == [Recalled(version=0, rate=0.4, before=0.5)]
    recall = made(freeze=False)
    learn(recall, 6)
    drop(recall)
    assert recall.versions == {}
    assert try_out(recall, {None: 0.0}) == [NewPath(version=1, rate=0.0, before=0.5)]


@pytest.mark.parametrize("when", ["learning", "trying"])
def test_it_goes_on_from_its_state_as_if_nothing_had_happened(when):
    recall = made()
    learn(recall, 6)
    drop(recall)
    try_out(recall, {None: 0.0})
    learn(recall, 6)
    if when == "trying":
        drop(recall)
        recall.after_trial([0.0, 300.0], [STEPS / 2] * 2)
    tensors, plain = recall.state()
    tensors = {name: tensor.clone() for name, tensor in tensors.items()}
    other = made()
    other.net.grow()  # as a checkpoint would have it
    other.net.model.load_state_dict(recall.net.model.state_dict())
    other.restore(tensors, json.loads(json.dumps(plain)))
    again, others = recall.state(), other.state()
    assert json.dumps(again[1]) == json.dumps(others[1])
    assert again[0].keys() == others[0].keys()
    assert all(torch.equal(tensor, others[0][name]) for name, tensor in again[0].items())
    if when == "trying":
        rates = {None: 0.0, 0: 0.4}
        assert try_out(recall, rates) == try_out(other, rates) == [Recalled(version=0, rate=0.4, before=0.5)]
        torch.testing.assert_close(outputs(other), outputs(recall), rtol=0, atol=0)


def test_nothing_is_tried_while_there_is_no_trial():
    with pytest.raises(ValueError, match=r"^there is no trial"):
        made().others()


def test_into_another_world_goes_what_mattered_most_and_the_rest_may_grow_again():
    recall = made(carry=0.25)
    learn(recall, 6)
    linear = recall.net.model.layers[0].linear
    before, square = linear.weight.detach().clone(), recall.net.optimizer.state[linear.weight]["exp_avg_sq"].clone()
    bias = linear.bias.detach().clone()
    assert recall.after_epoch(0.0, STEPS) == [TrialBegun(candidates=0, rate=0.0, before=0.5)]
    saliency = before.square() * square
    stays = saliency >= saliency.flatten().topk(before.numel() // 4).values.min()
    anew = ~stays.any(1)  # units of which nothing stays; they have new weights
    assert 0 < anew.sum() < len(anew)
    assert torch.equal(linear.weight.detach()[~anew], torch.where(stays, before, 0.0)[~anew])
    assert (linear.weight.detach()[anew] != 0).all()
    assert (linear.weight.detach()[anew] != before[anew]).all()
    assert torch.equal(linear.bias.detach(), torch.where(anew, 0.0, bias))
    moments = recall.net.optimizer.state[linear.weight]["exp_avg_sq"]
    assert torch.equal(moments, torch.where(stays, square, 0.0))
    cleared = (linear.weight == 0).sum()
    learn_once(recall)
    assert recall.net.shape().pruned == 0
    assert (linear.weight == 0).sum() < cleared / 2
    whole = made(carry=1.0)
    learn(whole, 6)
    before = whole.net.model.layers[0].linear.weight.detach().clone()
    whole.after_epoch(0.0, STEPS)
    assert torch.equal(whole.net.model.layers[0].linear.weight.detach(), before)


def test_every_epoch_counts_once_and_copies_are_made_at_their_interval():
    recall = made(interval=4, settled=3)
    used = []
    for epoch in range(1, 13):
        learn(recall)
        assert recall.epoch == epoch
        used.append(recall.versions[0].used if recall.versions else None)
    assert used == [None] * 3 + [4] * 4 + [8] * 4 + [12]
    drop(recall)
    begun = recall.epoch
    recall.after_trial([0.0], [STEPS])
    assert (recall.epoch, recall.trial.epochs) == (begun + 1, 1)
    try_out(recall, {None: 0.0})
    assert recall.epoch == recall.since == begun + 4  # with nothing else to try: twice the head start


def rates(recall, *given):
    """Let epochs have these rates; returns the decisions."""
    return [decision for rate in given for decision in recall.after_epoch(rate * STEPS, STEPS)]


def test_a_fall_is_looked_for_in_no_more_than_the_window():
    """Of 10 successes an epoch, two epochs without any are the fewest that chance does not explain."""
    for window, found in ((1, []), (2, [TrialBegun(candidates=0, rate=0.0, before=0.01)])):
        assert rates(made(settled=6, window=window), *[0.01] * 12, 0.0, 0.0) == found


def test_a_fall_begins_where_chance_ends():
    """Of 16 successes, four standard deviations are 16."""
    assert rates(made(settled=6), *[0.016] * 12, 0.0) == [TrialBegun(candidates=0, rate=0.0, before=0.016)]
    assert rates(made(settled=6), *[0.0159] * 12, 0.0) == []


@pytest.mark.parametrize(
    ("last", "kept"),
    [
        ([0.4], True),
        ([0.39], False),  # 0.46 on average, but not in the last epoch
        ([0.4, 0.44], False),  # 0.447 on average
        ([0.4, 0.45], True),
    ],
)
def test_a_copy_is_made_of_what_is_at_its_best_on_average_and_in_the_last_epoch(last, kept):
    recall = made(interval=1, settled=3, drop=0.01)
    rates(recall, *[0.5] * 6, *last)
    assert (recall.versions[0].used == recall.epoch) == kept


@pytest.mark.parametrize(
    ("after", "number"),
    [
        ([0.35] * 6, 0),  # 0.7 of 0.5
        ([0.1] * 3 + [0.35] * 3, 0),  # only the latest count
        ([0.5] * 3 + [0.34] * 3, 1),
        ([0.34] * 5, 0),  # it is not yet time
    ],
)
def test_what_goes_on_is_the_same_if_it_soon_does_again_what_it_did(after, number):
    recall = made(interval=3, drop=0.05)
    learn(recall, 6)
    drop(recall)
    assert try_out(recall, {None: 0.2}) == [Continued(rate=0.2, before=0.5)]
    rates(recall, *after)
    assert recall.current == number
    assert (recall.expected is None) == (len(after) == 6)


def test_a_trial_ends_in_time():
    recall = made(trial=10, head_start=3)  # of nothing but the network as it is: after twice the head start
    learn(recall, 6)
    drop(recall)
    begun = recall.epoch
    try_out(recall, {None: 0.0})
    assert recall.epoch - begun == 6
    learn(recall, 6)
    drop(recall)
    begun = recall.epoch
    try_out(recall, {None: 0.3, 0: 0.3})  # nobody is better: as long as it may last
    assert recall.epoch - begun == 10


def test_what_exactly_fills_the_budget_is_kept():
    size = made(keep=1.0).net.count_parameters()
    for budget, kept in ((2 * size, {0}), (2 * size - 1, set())):
        recall = made(keep=1.0, budget=budget)
        learn(recall, 6)
        assert recall.versions.keys() == kept


def test_a_version_was_last_in_use_when_the_world_changed():
    recall = made()
    learn(recall, 6)
    learn(recall, 1, rate=0.3)  # no copy
    drop(recall)
    assert recall.versions[0].used == recall.epoch == 8


def test_a_new_path_is_as_deep_as_can_be_and_remembers_nothing():
    recall = made()
    recall.net.rules = dataclasses.replace(recall.net.rules, max_depth=3, freeze_patience=9)
    learn(recall, 6)
    recall.net.end_epoch(0.5)
    recall.net.end_epoch(0.5)
    weight = recall.net.layers[0].weights[0]
    weight.belief.fill_(1.0)
    assert weight.previous is not None
    recall.net.freeze(0)
    drop(recall)
    assert try_out(recall, {None: 0.0}) == [NewPath(version=1, rate=0.0, before=0.5)]
    assert (recall.net.depth, recall.net.frozen) == (3, ())
    for layer in recall.net.layers:
        assert not layer.weights[0].belief.any()
        assert layer.weights[0].previous is None


def test_a_network_is_softened_once_at_a_drop_and_not_where_all_begins_anew():
    recall, softened = made(), []
    recall.soften = softened.append
    learn(recall, 12)
    assert softened == []
    drop(recall)
    try_out(recall, {None: 0.4})
    assert softened == [recall.net.model]
    recall = made(renew=True)
    recall.soften = softened.append
    learn(recall, 12)
    while not learn(recall, rate=0.0):
        pass
    assert len(softened) == 1  # there is nothing to soften in what begins anew


def test_where_all_begins_anew_at_a_drop_nothing_is_kept_or_tried():
    recall = made(renew=True)
    assert learn(recall, 12) == []
    before = outputs(recall)
    decisions = []
    while not decisions:
        decisions = learn(recall, rate=0.0)
    assert [type(decision) for decision in decisions] == [NewPath]
    assert (decisions[0].before, decisions[0].rate) == (0.5, 0.0)
    assert recall.trial is None
    assert recall.versions == {}
    assert not torch.allclose(outputs(recall), before)
    assert all(not state for state in recall.net.optimizer.state.values())
    assert learn(recall, 12, rate=0.1) == []  # the new network is not measured by what the old one reached


def test_a_copy_of_a_pruned_network_is_pruned_at_least_as_much():
    recall = made(keep=0.5)
    learn(recall, 2)
    recall.net.grow()
    recall.net.prune("by hand", 0.25)  # of all layers but the newest
    mask = recall.net.layers[0].weights[0].pruned.clone()
    assert int(mask.sum()) == 24
    snapshot = prune_snapshot(recall.net, copied(capture(recall.net)), 0.9)
    assert (snapshot[0]["layer/0/pruned/linear.weight"] & mask).sum() == 24
