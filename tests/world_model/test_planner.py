"""The planner, with models that foretell something definite."""

import numpy as np
import pytest
import torch

from gpf.navigation.acting import NetworkPolicy
from gpf.navigation.evaluate import evaluate
from gpf.navigation.flat import FlatNetwork
from gpf.navigation.policies import CastAndSurge
from gpf.navigation.tokenized import Tokenized
from gpf.network import MLP
from gpf.plume.scenario import Scenario
from gpf.world_model.model import WorldModel
from gpf.world_model.planner import Planner, Scoring, _values

WORLD = Scenario.of({"preset": "reference", "max_steps": 30})


class Fortune(WorldModel):
    """Foretells a whiff on the left after one action, and wind from ahead after another."""

    def __init__(self, smell, ahead):
        super().__init__(width=4, heads=1, depth=1, context=8)
        self.smell, self.ahead = smell, ahead

    def extend(self, codes, cache):
        super().extend(codes, cache)
        logits = torch.full((len(codes), 22), -20.0)
        last = codes[:, -1] - 392
        logits[torch.arange(len(codes)), torch.where(last == self.smell, 3, 0)] = 20.0
        logits[:, 7] = 20.0
        logits[torch.arange(len(codes)), 14 + torch.where(last == self.ahead, 0, 4)] = 20.0
        return logits


def seen_once(planner, lanes=1):
    planner.begin(range(lanes), WORLD)
    actions = np.zeros(lanes, np.int64)
    planner.act(np.zeros((lanes, 5), np.float32), np.arange(lanes), actions)
    return actions.tolist()


@pytest.mark.parametrize("smell", range(6))
def test_it_does_what_promises_most_smell(smell):
    assert seen_once(Planner(Fortune(smell, -1), WORLD, horizon=3, scoring=Scoring(1.0, 0.0)), 20) == [smell] * 20


def test_it_goes_upwind_if_that_is_what_counts():
    fortune = Fortune(smell=1, ahead=2)
    assert seen_once(Planner(fortune, WORLD, horizon=3, scoring=Scoring(0.0, 1.0))) == [2]
    assert seen_once(Planner(fortune, WORLD, horizon=3, scoring=Scoring(1.0, 1.0))) == [1]
    assert seen_once(Planner(fortune, WORLD, horizon=3, scoring=Scoring(0.0, 0.0, blank=1.0))) == [1]


def test_scores_worked_by_hand():
    """Repeating action 1 smells in each of 3 steps, with wind from behind: 3 - 3 strides cos(22.5 deg)."""
    planner = Planner(Fortune(1, 2), WORLD, horizon=3, rollouts=2, scoring=Scoring(1.0, 1.0, 0.5))
    seen_once(planner)
    stride = WORLD.speed * WORLD.time_step
    way = 3 * stride * np.cos(np.pi / 8)
    assert planner.scores(np.array([0])).tolist() == [
        pytest.approx([-1.5 - way, 3 - way, -1.5 + way, *[-1.5 - way] * 3])
    ]


def test_a_discount_and_a_level_worked_by_hand():
    """Repeating action 1 smells at level 3 in each of 3 steps: 1 + 1/2 + 1/4."""
    for level, wanted in ((3, 1.75), (4, 0.0)):
        scoring = Scoring(1.0, 0.0, whiff_level=level, discount=0.5)
        planner = Planner(Fortune(1, -1), WORLD, horizon=3, rollouts=2, scoring=scoring)
        seen_once(planner)
        assert planner.scores(np.array([0]))[0].tolist() == [0, wanted, 0, 0, 0, 0]


class Stubborn:
    """Always turns around."""

    PER_LANE = ()

    def begin(self, seeds, scenario):
        pass

    def act(self, raw, lanes, actions):
        actions[lanes] = 3


def test_where_all_actions_promise_the_same_the_policy_that_is_followed_has_its_way():
    planner = Planner(Fortune(-1, -1), WORLD, Tokenized(Stubborn(), WORLD), 2, margin=0.0)
    assert seen_once(planner, 3) == [3] * 3


def test_a_policy_that_is_followed_has_its_way_within_the_margin():
    follow = Tokenized(CastAndSurge(), WORLD)
    follow.begin([0], WORLD)
    actions = np.zeros(1, np.int64)
    follow.act(np.zeros((1, 5), np.float32), np.zeros(1, np.int64), actions)
    own = int(actions[0])
    other = (own + 1) % 6
    for margin, wanted in ((100.0, own), (0.0, other)):
        planner = Planner(
            Fortune(other, -1), WORLD, Tokenized(CastAndSurge(), WORLD), 1, margin=margin, scoring=Scoring(1.0, 0.0)
        )
        assert seen_once(planner) == [wanted]


@pytest.mark.parametrize("follow", [False, True])
def test_an_episode_does_not_depend_on_those_beside_it(model, follow):
    planner = Planner(model, WORLD, Tokenized(CastAndSurge(), WORLD, 2) if follow else None, 3, 2)
    many = evaluate(planner, WORLD, 19)  # more than are planned together
    alone = evaluate(planner, WORLD, 1)
    few = evaluate(planner, WORLD, 2, first_seed=(1 << 48) + 17)
    assert many.steps[0] == alone.steps[0]
    assert many.steps[17:].tolist() == few.steps.tolist()
    assert many.start_distance[17:].tolist() == few.start_distance.tolist()


def test_a_navigator_that_is_followed_draws_anew_in_every_rollout_and_alike_for_every_action(model):
    torch.manual_seed(0)
    policy = NetworkPolicy(FlatNetwork(MLP(16, 8, 7)), "memory", "sampled", WORLD)
    planner = Planner(model, WORLD, Tokenized(policy, WORLD, 2), 3, 4, scoring=Scoring(0.0, 0.0, value=1.0))
    seen_once(planner, 2)
    drawn = []
    redraw = NetworkPolicy.redraw

    def looked(self, seeds):
        redraw(self, seeds)
        drawn.append(self._streams.reshape(2, 6, 4, 4))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NetworkPolicy, "redraw", looked)
        scores = planner.scores(np.arange(2))
    assert (drawn[0] == drawn[0][:1, :1]).all()
    assert len(np.unique(drawn[0][0, 0], axis=0)) == 4
    # What counts is the value of the end alone: that of the critic's output, the last of seven.
    assert np.ptp(scores) > 0
    planner.scoring = Scoring(0.0, 0.0, value=1.0, discount=0.5)
    assert planner.scores(np.arange(2)) == pytest.approx(scores / 8)  # at the end of 3 steps
    assert scores.max() <= planner.follow.policy.outputs[:, -1].max() + 10


@pytest.mark.parametrize(
    ("outputs", "value"), [([1.0, 5.0, 2.0, 0.0, 0.0, 0.0], 5.0), ([1.0, 5.0, 2.0, 0.0, 0.0, 0.0, 3.0], 3.0)]
)
def test_the_value_of_a_navigator_is_its_critics_or_that_of_its_best_action(outputs, value):
    policy = NetworkPolicy(FlatNetwork(MLP(16, 8, len(outputs))), "memory", "greedy", WORLD)
    policy.outputs = np.array([outputs], np.float32)
    assert _values(policy).tolist() == [value]


def test_it_remembers_as_much_as_the_model_can_use(model):
    planner = Planner(model, WORLD, horizon=2, rollouts=1)
    planner.begin([0], WORLD)
    random, seen = np.random.default_rng(0), []
    for _ in range(40):  # more than its store holds
        raw = np.zeros((1, 5), np.float32)
        raw[0, :2] = random.random(2) * 0.1
        actions = np.zeros(1, np.int64)
        planner.act(raw, np.zeros(1, np.int64), actions)
        seen.append(int(actions[0]))
        kept = planner._history[0, 1 : planner._length]
        assert (kept[1::2] - 392).tolist() == seen[-len(kept) // 2 :]
        assert len(kept) >= min(2 * len(seen), 2 * model.context)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"horizon": 8}, "horizon must be from 1 to 7 steps, .*, got 8"),
        ({"rollouts": 0}, "rollouts must be at least 1, got 0"),
        ({"scoring": Scoring(value=1.0)}, "value must be 0 unless rollouts follow a trained navigator, got 1.0"),
    ],
)
def test_impossible_plans_are_refused(model, options, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        Planner(model, WORLD, **{"horizon": 3, **options})
