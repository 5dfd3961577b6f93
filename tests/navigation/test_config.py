"""Settings: flat for users, typed for code, refused in one line."""

import dataclasses
import json

import pytest

from gpf import navigation
from gpf.navigation import Config, online, parallel, policy_gradient
from gpf.navigation.agents import load_navigator, read_run_config
from gpf.navigation.config import LEARNERS, flat_settings
from gpf.network import Rules
from gpf.plume import Scenario
from gpf.runs.folder import RunError
from gpf.settings import field_types


def test_the_defaults_are_those_of_the_learner():
    assert Config.of() == Config() == Config.of(learner="policy-gradient")
    assert Config().learner == policy_gradient.Settings()
    for name, kind in LEARNERS.items():
        assert Config.of({"learner": name}).learner == kind()
        assert name == kind.NAME


def test_defaults_that_depend_on_the_observation_give_way_to_what_is_given():
    learner = Config.of(observation="onehot").learner
    assert (learner.critic, learner.discount, learner.steps, learner.ema) == ("privileged", 0.999, 6_000_000, 0.98)
    learner = Config.of(observation="onehot", discount=0.9, critic="shared").learner
    assert (learner.critic, learner.discount, learner.steps) == ("shared", 0.9, 6_000_000)
    learner = Config.of({"learner": "parallel"}, observation="memory").learner
    assert (learner.discount, learner.steps, learner.gae_lambda) == (0.998, 4_000_000, 0.95)


def test_only_the_reward_of_a_search_pays_for_loitering():
    assert Config.of(learner="parallel").learner.loitering == 0.4
    assert Config.of(learner="parallel", reward="paper").learner.loitering == 0.0
    config = Config.of(learner="parallel", discount=0.9)
    rewarded = Scenario.preset("reference").rewarded("search", 0.9, 0.4)
    assert config.rewarded(Scenario.preset("reference")) == rewarded


@pytest.mark.parametrize("learner", LEARNERS)
def test_plain_settings_make_the_same_configuration_again(learner):
    sees = {} if learner == "recurrent" else {"observation": "memory", "without": ["clock"]}
    config = Config.of(
        learner=learner, learning_rate=1, rules={"max_depth": 4, "grow_trial": None}, plan=["3:grow"], depth=2, seed=5,
        **sees,
    )  # fmt: skip
    again = Config.of(json.loads(json.dumps(config.plain())))
    assert again == config
    assert again.plan == ("3:grow",)
    assert isinstance(again.learner.learning_rate, float)
    assert config.plain().keys() == flat_settings(learner).keys()


def test_no_setting_of_a_learner_hides_one_of_the_configuration():
    for kind in LEARNERS.values():
        assert not field_types(kind).keys() & field_types(Config).keys()


def test_epochs_are_rollouts_or_episodes():
    assert Config.of(steps=1000, lanes=10, horizon=5).epochs == 20
    for learner in ("policy-gradient", "parallel"):
        assert Config.of(learner=learner, steps=1, lanes=10, horizon=5).epochs == 1
        assert Config.of(learner=learner, steps=76, lanes=10, horizon=5).epochs == 2
    assert Config.of(learner="online", episodes=7).epochs == 7


def test_rules_are_the_learners_with_those_of_the_observation_and_those_given():
    assert Config.of().network_rules() == Rules.plume(**policy_gradient.Settings.RULES)
    aliased = Config.of(observation="onehot", rules={"prune_patience": "7", "grow_trial": "none"}).network_rules()
    assert (aliased.max_depth, aliased.grow_patience, aliased.warmup) == (2, 60, 10)
    assert (aliased.prune_patience, aliased.grow_trial) == (7, None)
    assert Config.of(learner="online").network_rules() == Rules.plume()
    assert Config.of(gpf=False, depth=9).network_rules() == Rules.fixed()


def test_a_network_of_its_final_depth_may_still_be_pruned():
    config = Config.of(depth=4, rules=policy_gradient.SHRINKING)
    assert (config.network_rules().max_depth, config.network_rules().prune_to) == (4, 0.7)


def test_rules_may_be_typed_or_given_as_values():
    given = {"max_depth": 5, "grow_trial": None, "saliency": "obd", "freeze_delta": 0.25, "grow_undoable": True}
    typed = {"max_depth": "5", "grow_trial": "none", "saliency": "obd", "freeze_delta": ".25", "grow_undoable": "true"}
    rules = Config.of(rules=given).network_rules()
    assert rules == Config.of(rules=typed).network_rules() == dataclasses.replace(Config().network_rules(), **given)


def test_a_plan_takes_the_place_of_the_rules_that_grow_and_prune():
    config = Config.of(plan=("2:grow", "2:keep=.5", "9:keep=1", "9:keep=0."), depth=3)
    assert config.planned_events() == {2: [None, 0.5], 9: [1.0, 0.0]}
    rules = config.network_rules()
    assert (rules.grow_patience, rules.prune_patience, rules.max_depth) == (None, None, None)
    assert (rules.grow_at, rules.prune_to) == ((), None)
    assert rules.freeze_patience == policy_gradient.Settings.RULES["freeze_patience"]
    assert Config.of().planned_events() == {}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"learner": "dog"}, "unknown learner 'dog'; accepted: policy-gradient, recurrent, parallel, online"),
        ({"learner": "onlin"}, "unknown learner 'onlin'; did you mean 'online'[?]"),
        (
            {"learner": "online", "lanes": 4},
            "lanes is a setting of policy-gradient and recurrent and parallel, not of online",
        ),
        ({"learner": "online", "entropy": 0.1}, "entropy is a setting of policy-gradient and recurrent, not of online"),
        ({"episodes": 5}, "episodes is a setting of online, not of policy-gradient"),
        ({"q_learning": True}, "q_learning is a setting of parallel and online, not of policy-gradient"),
        (
            {"learner": "parallel", "critic": "shared"},
            "critic is a setting of policy-gradient and recurrent, not of parallel",
        ),
        ({"learning_rat": 1.0}, "unknown setting 'learning_rat'; did you mean 'learning_rate'[?]"),
        ({"dept": 1}, "unknown setting 'dept'; did you mean 'depth'[?]"),
        ({"critic": "privileged"}, "critic must be shared with observation memory"),
        ({"critic": "god"}, "critic must be one of shared, privileged, got 'god'"),
        ({"observation": "raw"}, "observation must be one of memory, onehot, got 'raw'"),
        ({"observation": []}, r"observation must be one of memory, onehot, got \[\]"),
        ({"reward": "gold"}, "reward must be one of search, paper, reference, got 'gold'"),
        ({"acting": "wild"}, "acting must be one of greedy, sampled, got 'wild'"),
        ({"learner": "parallel", "ema": 1.0}, "ema must be at least 0 and below 1, got 1.0"),
        ({"depth": 3}, "depth must be below max_depth, 3, .*; got 3"),
        ({"depth": 4}, "depth must be at most max_depth, 3, got 4"),
        ({"learner": "parallel", "acting": "sampled"}, "acting must be greedy with learner parallel, got 'sampled'"),
        ({"reward": "paper", "loitering": 0.3}, "loitering needs reward search, got 0.3 with paper"),
        ({"loitering": 1.0}, "loitering must be at least 0 and below 1, got 1.0"),
        ({"gpf": False, "rules": {"max_depth": 2}}, "rules need gpf, which is off"),
        ({"gpf": False, "plan": ("3:grow",)}, "plan needs gpf, which is off"),
        ({"plan": ("grow",)}, "plan must be EPOCH:grow, or EPOCH:keep=SHARE .*; got 'grow'"),
        ({"plan": ("3:keep=1.5",)}, "plan must be EPOCH:grow, .*; got '3:keep=1.5'"),
        ({"plan": ("0:grow",)}, "plan must be EPOCH:grow, .*; got '0:grow'"),
        ({"plan": "3:grow"}, "plan must be a list, got '3:grow'"),
        ({"rules": {"max_dept": "2"}}, "unknown rule 'max_dept'; did you mean 'max_depth'[?]"),
        ({"rules": {"max_depth": "deep"}}, "max_depth.* 'deep'"),
        ({"rules": 3}, "rules must be a table, got 3"),
        ({"observation": "onehot", "without": ("clock",)}, "without needs observation memory, got 'clock' with onehot"),
        ({"steps": 0}, "steps must be at least 1 and at most 1,000,000,000,000, got 0"),
        ({"steps": 1.5}, "steps must be a whole number, got 1.5"),
        ({"discount": 1.5}, "discount must be at least 0 and at most 1, got 1.5"),
        ({"learning_rate": -1.0}, "learning_rate must be at least 0, got -1.0"),
        ({"learning_rate": float("inf")}, "learning_rate must be at least 0, got inf"),
        ({"lanes": 1 << 20}, "lanes must be at least 1 and at most 65,536, got 1048576"),
        ({"seed": -1}, "seed must be at least 0 and at most .*, got -1"),
        ({"seed": 1 << 24}, "seed must be at least 0 and at most .*, got 16777216"),
        ({"round_epochs": 0}, "round_epochs must be at least 1, got 0"),
        ({"validate_every": 0}, "validate_every must be at least 1, got 0"),
        ({"validation_episodes": 0}, "validation_episodes must be at least 1 and .*, got 0"),
    ],
)  # fmt: skip
def test_impossible_settings_are_refused_in_one_line(values, message):
    with pytest.raises(ValueError, match=f"^{message}") as caught:
        Config.of(values)
    assert "\n" not in str(caught.value)


def test_what_is_made_without_of_is_refused_by_check():
    Config(learner=online.Settings(), seed=(1 << 24) - 1).check()
    for config in (Config(learner=parallel.Settings(reward="paper")), Config(width=0), Config(depth=3)):
        with pytest.raises(ValueError, match="loitering|width|depth"):
            config.check()


def written(folder, config):
    folder.mkdir()
    world = json.loads(Scenario.preset("reference").to_json())
    (folder / "config.json").write_text(json.dumps({"config": config, "world": world}))
    return folder


def test_a_run_of_an_earlier_version_names_settings_that_its_learner_does_not_take(tmp_path):
    config = Config.of(seed=3, lanes=16)
    extra = {"q_learning": False, "layer_norm": None, "episodes": None}
    assert read_run_config(written(tmp_path / "old", {**config.plain(), **extra}))[0] == config


@pytest.mark.parametrize(
    "config", [3, {}, {"learner": "dog"}, {"learner": []}, {"learner": "online", "learning_rate": "fast"}]
)
def test_a_damaged_configuration_is_refused_in_one_line(config, tmp_path):
    with pytest.raises(RunError, match=r"config.json is not the configuration of a plume run \(") as caught:
        read_run_config(written(tmp_path / "run", config))
    assert "\n" not in str(caught.value)


def test_what_users_need_stands_in_the_package():
    assert all(hasattr(navigation, name) for name in navigation.__all__)
    assert navigation.load is load_navigator
    with pytest.raises(AttributeError, match="^module 'gpf.navigation' has no attribute 'lod'$"):
        _ = navigation.lod


@pytest.mark.parametrize("learner", LEARNERS)
def test_the_smallest_whole_numbers_are_accepted_and_smaller_ones_refused(learner):
    from_zero = {"seed": 0, "evaluate": 0, **({"burn_in": 0} if learner == "recurrent" else {})}
    whole = [name for name, kind in flat_settings(learner).items() if kind is int and name not in from_zero]
    assert {"width", "depth", "round_epochs", "validate_every", "validation_episodes"} < set(whole)
    Config.of(learner=learner, gpf=False, **from_zero, **dict.fromkeys(whole, 1))
    for name, least in {**from_zero, **dict.fromkeys(whole, 1)}.items():
        with pytest.raises(ValueError, match=f"^{name} must be at least {least}"):
            Config.of(learner=learner, gpf=False, **{name: least - 1})
