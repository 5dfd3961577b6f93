import dataclasses

import numpy as np
import pytest

from gpf.plume import Scenario
from gpf.plume.rewards import TERMS
from gpf.plume.world import World


class PlainReward:
    """PAPER's reward, written down once more: terms by name, from what can be seen of a lane."""

    def __init__(self, scenario, distance):
        self.scenario, self.distance, self.blank = scenario, distance, 0

    def terms(self, lane, success):
        s = self.scenario
        terms = dict.fromkeys(TERMS, 0.0)
        terms["time"] = s.reward_time
        whiff = max(lane["left"], lane["right"]) > s.whiff_threshold
        self.blank = 0 if whiff else self.blank + 1
        if success:
            terms["success"] = s.reward_success
        if not (success and s.success_replaces):
            if whiff:
                terms["whiff"] = s.reward_whiff
            elif self.blank > 20:  # 2 s
                terms["blank"] = s.reward_blank
            potential = 0.0 if success else -lane["distance"]
            terms["shaping"] = s.reward_shaping * (s.shaping_discount * potential + self.distance)
        self.distance = lane["distance"]
        return terms


@pytest.mark.parametrize("preset", ["paper", "reference"])
def test_terms_equal_a_plain_version_through_whole_episodes(preset):
    scenario = dataclasses.replace(
        Scenario.preset(preset), start_distance_min=1.0, start_distance_max=3.0, success_radius=0.9, max_steps=300
    )
    world = World(40, scenario)
    world.seed(range(40))
    world.begin()
    plain = [PlainReward(scenario, lane["distance"]) for lane in world.lanes]
    rng = np.random.default_rng(0)
    seen = dict.fromkeys(TERMS, 0)
    while world.lanes["running"].any():
        running = world.lanes["running"].astype(bool)
        world.step(np.where(rng.random(40) < 0.8, 0, rng.integers(0, 6, 40)))
        for i in np.flatnonzero(running):
            expected = plain[i].terms(world.lanes[i], world.successes[i])
            assert dict(zip(TERMS, world.terms[i].tolist(), strict=True)) == pytest.approx(expected)
            assert world.rewards[i] == pytest.approx(sum(expected.values()))
            for name, value in expected.items():
                seen[name] += value != 0
    assert min(seen.values()) > 5, seen


def test_discounted_shaping_of_a_found_source_depends_on_the_start_alone():
    """What makes shaping harmless (Ng et al. 1999): the discounted sum telescopes to minus the first potential."""
    scenario = Scenario(start_distance_min=1.0, start_distance_max=2.0, success_radius=0.9)
    world = World(50, scenario)
    world.seed(range(50))
    world.begin()
    start = world.lanes["distance"].copy()
    total, discount = np.zeros(50), 1.0
    found = np.zeros(50, bool)
    for _ in range(60):
        running = world.lanes["running"].astype(bool)
        world.step(np.zeros(50, np.int64))
        total += np.where(running, discount * world.terms[:, TERMS.index("shaping")], 0.0)
        discount *= 0.99
        found |= world.successes
    assert found.sum() > 10
    np.testing.assert_allclose(total[found], 2.0 * start[found], rtol=1e-9)


def test_a_weight_of_zero_silences_its_term():
    silent = {f"reward_{name}": 0.0 for name in TERMS}
    world = World(20, Scenario(**silent))
    world.seed(range(20))
    world.begin()
    for _ in range(100):
        world.step(np.zeros(20, np.int64))
        assert not world.rewards.any()


@pytest.mark.parametrize("discount", [0.9, 0.99, 0.998])
def test_loitering_in_the_plume_is_worth_a_share_of_the_source(discount):
    """Whiffs for ever, discounted: as much as the source in the paper, a chosen share of it in `search`."""
    paper = Scenario().rewarded("paper")
    assert paper.reward_whiff / (1 - 0.99) == pytest.approx(paper.reward_success)
    for share in (0.0, 0.4):
        ours = Scenario().rewarded("search", discount, share)
        assert ours.reward_whiff / (1 - discount) == pytest.approx(share * ours.reward_success)
        assert ours.shaping_discount == discount
        assert not ours.timeout_terminates


def test_another_reward_leaves_the_world_as_it_is():
    hard = Scenario.of({"preset": "reference", "sensor_noise": 0.01})
    for reward in ("paper", "reference"):
        changed, preset = hard.rewarded(reward), Scenario.preset(reward)
        assert (changed.sensor_noise, changed.start_distance_max) == (0.01, hard.start_distance_max)
        assert changed.reward_success == preset.reward_success
        assert changed.timeout_terminates == preset.timeout_terminates
        assert changed.shaping_discount == preset.shaping_discount
    with pytest.raises(ValueError, match="^unknown reward 'gold'; accepted: paper, reference, search$"):
        hard.rewarded("gold")
    with pytest.raises(ValueError, match="^loitering must be at least 0 and below 1, the worth of the source, got 1.0"):
        hard.rewarded("search", 0.99, 1.0)
