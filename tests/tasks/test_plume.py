"""Training runs: the same every time, whatever interrupts them."""

import json
import os
import random
import shutil
import signal
import time

import numpy as np
import pytest
import torch
from support import edit, logs, saved_round, without

import gpf
from gpf.navigation import Config, load, policy_gradient
from gpf.navigation.agents import load_navigator, make_learner, make_network
from gpf.navigation.evaluate import Evaluation, evaluate
from gpf.navigation.seeds import BLOCK, HELD_OUT
from gpf.network import MLP, CheckpointError, Rules
from gpf.plume import Scenario
from gpf.runs.folder import Run, RunError, read_config, read_log, read_result
from gpf.tasks import plume
from gpf.tasks.plume import TASK, has_regressed
from gpf.tasks.plume_result import regression

pytestmark = pytest.mark.usefixtures("one_torch_thread", "few_episodes")

RULES = {
    "warmup": "0", "grow_patience": "2", "grow_threshold": "0.5", "grow_trial": "8", "prune_patience": "3",
    "belief_threshold": "2.0", "freeze_patience": "5", "freeze_delta": "1.0", "freeze_fraction": "0.5",
    "grow_at": "[]", "grow_by": "1", "prune_to": "none", "granularity": "weight", "remove_units": "false",
}  # fmt: skip
"""Everything happens: layers grow, are pruned, fail their trial and are taken out again, and freeze."""
SHORT = {"width": 16, "round_epochs": 5, "validate_every": 2, "validation_episodes": 10}
LANES = {"lanes": 8, "horizon": 16, "steps": 6000, "minibatch": 64}
SMALL = {
    "policy-gradient": {**SHORT, **LANES, "depth": 1, "rules": RULES, "evaluate": 20},
    "parallel": {**SHORT, **LANES, "learner": "parallel", "minibatch": 1024, "rules": RULES, "evaluate": 20},
    "online": {**SHORT, "learner": "online", "episodes": 30, "rules": {**RULES, "grow_patience": "4"}, "evaluate": 20},
}
"""A second of training, in which the network grows and is pruned."""


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    """The rules look at few episodes, so that they begin soon."""
    monkeypatch.setattr(plume, "RECENT", 20)


@pytest.fixture
def small(short_world):
    """Settings of a short run of a learner, in a short world."""
    return lambda learner, **changes: TASK.of({**SMALL[learner], "scenario": str(short_world), **changes})


@pytest.fixture
def start(small):
    return lambda learner, folder, **changes: TASK.create(folder, small(learner, **changes))


def train(run, threads=1):
    try:
        return TASK.train(run, threads)
    finally:
        run.close()


def begin(run):
    return TASK.training(run, TASK.read(run.folder), 1)


def what_happened(folder):
    """Everything that a run has written, but for the clock."""
    results = without(read_result(folder), "seconds")
    weights = TASK.load(folder).model.state_dict()
    return logs(folder), results, {name: tensor.tolist() for name, tensor in weights.items()}


@pytest.mark.parametrize("learner", SMALL)
@pytest.mark.parametrize("observation", ["memory", "onehot"])
def test_the_same_seed_gives_the_same_run_and_interruptions_change_nothing(learner, observation, tmp_path, start):
    for name in ("whole", "pieces"):
        start(learner, tmp_path / name, observation=observation).close()
    train(Run.open(tmp_path / "whole"), threads=2)
    for _ in range(3):
        run = Run.open(tmp_path / "pieces")
        training = begin(run)
        training.round()
        training.round()
        run.append("metrics", [{"round": training.progress["round"] + 1, "left": "by a process that was killed"}])
        run.close()
    train(Run.open(tmp_path / "pieces"))
    whole, pieces = what_happened(tmp_path / "whole"), what_happened(tmp_path / "pieces")
    assert whole == pieces
    assert {event["kind"] for event in whole[0][1]} == {"grown", "pruned", "frozen", "undone"}


RECURRENT = {
    "rules": (RULES, 1, {"grown", "pruned", "frozen", "undone"}),
    "units": (policy_gradient.GROWING, 2, {"grown", "pruned", "removed"}),
}


@pytest.mark.parametrize("events", RECURRENT)
def test_what_lanes_remember_follows_every_event_and_survives_interruptions(events, tmp_path, short_world):
    """Recurrent blocks grow, lose weights or units, fail their trial and freeze; the run resumes bit for bit."""
    rules, depth, kinds = RECURRENT[events]
    settings = {**SHORT, **LANES, "learner": "recurrent", "burn_in": 4, "rules": rules, "depth": depth, "evaluate": 20}
    for name in ("whole", "pieces"):
        TASK.create(tmp_path / name, TASK.of({**settings, "scenario": str(short_world)})).close()
    train(Run.open(tmp_path / "whole"))
    for _ in range(3):
        run = Run.open(tmp_path / "pieces")
        training = begin(run)
        training.round()
        training.round()
        run.close()
    train(Run.open(tmp_path / "pieces"))
    whole = what_happened(tmp_path / "whole")
    assert whole == what_happened(tmp_path / "pieces")
    assert {event["kind"] for event in whole[0][1]} == kinds
    navigator = load_navigator(tmp_path / "whole")
    assert navigator.evaluate(20).summary()["success"] == whole[1]["success"]


def test_planned_rules_grow_prune_and_remove_units_and_a_run_of_them_resumes_too(tmp_path, start):
    for name in ("whole", "pieces"):
        start("policy-gradient", tmp_path / name, rules=policy_gradient.GROWING, depth=2).close()
    train(Run.open(tmp_path / "whole"))
    for _ in range(4):
        run = Run.open(tmp_path / "pieces")
        begin(run).round()
        run.close()
    train(Run.open(tmp_path / "pieces"))
    whole = what_happened(tmp_path / "whole")
    assert whole == what_happened(tmp_path / "pieces")
    assert {event["kind"] for event in whole[0][1]} == {"grown", "pruned", "removed"}
    assert whole[1]["depth"] == 4
    widths = [len(bias) for name, bias in whole[2].items() if name.endswith("linear.bias")]
    assert sum(widths) == round(0.7 * 4 * 16)
    assert whole[1]["flops"] > 0


def test_another_seed_gives_another_run(tmp_path, start):
    for seed in (0, 1):
        train(start("policy-gradient", tmp_path / str(seed), seed=seed, steps=500))
    assert what_happened(tmp_path / "0")[2] != what_happened(tmp_path / "1")[2]


def test_killed_at_random_moments_a_run_loses_nothing_and_ends_the_same(tmp_path, start):
    """SIGKILL of a process that has everything loaded, so that most moments are of training."""
    for name in ("whole", "killed"):
        start("policy-gradient", tmp_path / name).close()
    train(Run.open(tmp_path / "whole"))
    chance, rounds, last = random.Random(0), [0], saved_round(tmp_path / "whole")
    deadline = time.monotonic() + 120.0
    while rounds[-1] < last - 2:
        child = os.fork()
        if child == 0:
            try:
                TASK.train(Run.open(tmp_path / "killed", patience=30.0), 1)
            finally:
                os._exit(0)
        wanted = rounds[-1] + chance.randint(1, 2)
        while saved_round(tmp_path / "killed") < wanted:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        time.sleep(chance.uniform(0.0, 0.02))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        rounds.append(saved_round(tmp_path / "killed"))
    assert rounds == sorted(rounds)
    assert len(set(rounds)) > 2  # kills fell into different rounds
    train(Run.open(tmp_path / "killed"))
    assert what_happened(tmp_path / "killed") == what_happened(tmp_path / "whole")


@pytest.mark.parametrize("learner", SMALL)
def test_rules_under_which_nothing_happens_are_as_good_as_no_gpf(learner, small):
    """An agent without GPF is one whose network was never attached: the same bits, epoch by epoch."""
    config = small(learner, gpf=False, rules={})
    world = Scenario.of(config.scenario)
    attached = make_network(config)
    plain = make_network(config)
    optimizer = plain.optimizer
    model = plain.detach()
    bare = type("Bare", (), {"model": model, "optimizer": optimizer, "layers": []})()
    learners = []
    for net in (attached, bare):
        torch.manual_seed(5)
        learners.append(make_learner(config, world, net, 1))
        for k in range(6):
            learners[-1].epoch(k / 6)
            if net is attached:
                assert net.end_epoch(0.1) == []
    np.testing.assert_array_equal(*(one.network.values for one in learners))


def test_pruned_weights_stay_pruned_to_the_end(tmp_path, start):
    for learner in SMALL:
        rules = {**SMALL[learner]["rules"], "grow_trial": "null", "freeze_patience": "null"}
        result = train(start(learner, tmp_path / learner, rules=rules))
        navigator = load_navigator(tmp_path / learner)
        assert result["density"] < 1.0
        assert navigator.net.density == result["density"]
        for layer in navigator.net.layers:
            for weight in layer.weights:
                if weight.pruned is not None:
                    assert not weight.parameter.detach()[weight.pruned].any()


def test_what_is_planned_happens_when_it_is_planned_and_nothing_else(tmp_path, start):
    plan = ("6:grow", "8:keep=0.5", "13:grow", "14:keep=0.25")
    for learner in SMALL:
        run = start(learner, tmp_path / learner, rules={"freeze_patience": "null"}, plan=plan)
        begin(run).round()
        result = train(run)  # from another process, as it were
        events = read_log(tmp_path / learner, "events")
        assert [(line["kind"], line["round"]) for line in events] == [
            ("grown", 2), ("pruned", 2), ("grown", 3), ("pruned", 3),
        ]  # fmt: skip
        inputs = load_navigator(tmp_path / learner).net.layers[0].weights[0].parameter.shape[1]
        first, grown = 16 * inputs, 16 * 16
        assert [line["after"]["pruned"] for line in events[1::2]] == [
            first - round(0.5 * first),
            first + grown - round(0.25 * (first + grown)),
        ]
        assert result["depth"] == 3
        assert result["density"] == pytest.approx(1 - events[-1]["after"]["pruned"] / (first + 2 * grown))


def test_a_result_is_that_of_the_checkpoints_on_held_out_episodes(tmp_path, start):
    result = train(start("policy-gradient", tmp_path / "run", seed=3))
    assert {"success", "low", "high", "mean_steps", "depth", "density", "frozen", "seconds"} <= result.keys()
    navigator = load_navigator(tmp_path / "run")
    again = evaluate(navigator.policy, navigator.scenario, 20, HELD_OUT + 3 * BLOCK)
    assert again.summary()["success"] == result["success"]
    assert again.summary()["spl"] == result["spl"]
    assert result["episodes"] == 20
    assert read_result(tmp_path / "run") == json.loads(json.dumps(result))
    held_out = Evaluation.load(tmp_path / "run" / "held_out.npz", navigator.scenario)
    assert held_out.success.tolist() == again.success.tolist()
    assert held_out.steps.tolist() == again.steps.tolist()


def test_a_run_that_is_not_evaluated_says_how_its_last_validation_went(tmp_path, start):
    result = train(start("parallel", tmp_path / "run", evaluate=0))
    assert (result["success"], result["episodes"]) == (None, 0)
    validations = [line["validation"] for line in read_log(tmp_path / "run", "metrics") if line["validation"]]
    assert result["validation"]["last"] == validations[-1]["success"]
    assert result["validation"]["best"] == max(line["success"] for line in validations)
    assert not (tmp_path / "run" / "held_out.npz").exists()


@pytest.mark.parametrize(
    ("last", "best", "episodes", "regressed"),
    [
        (0.638, 0.844, 500, True),  # what a user met in a harder world
        (0.990, 0.998, 500, False),  # the luck of the best of many
        (0.960, 1.000, 500, True),
        (0.50, 0.60, 500, False),  # 3.2 standard deviations; the best is the best of dozens
        (0.50, 0.63, 500, True),
        (0.50, 0.63, 50, False),  # the same from few episodes
        (0.985, 1.000, 100_000, False),  # significant, and too little to speak of
        (0.0, 0.0, 500, False),
    ],
)
def test_a_last_checkpoint_far_below_the_best_is_told_from_chance(last, best, episodes, regressed):
    assert has_regressed(last, best, episodes) == regressed


def test_where_training_has_regressed_the_best_checkpoint_is_evaluated_too(tmp_path, start, monkeypatch):
    monkeypatch.setattr("gpf.tasks.plume.has_regressed", lambda *shares: True)
    result = train(start("parallel", tmp_path / "run"))
    best = load_navigator(tmp_path / "run", "best").evaluate(20)
    assert result["regressed"]
    assert result["best"]["success"] == best.success.mean()
    assert "--checkpoint best" in regression({"run": "runs/a", **result})


def test_the_best_checkpoint_is_that_of_the_best_validation(plume_run):
    validations = [(line["round"], line["validation"]) for line in read_log(plume_run, "metrics") if line["validation"]]
    ranks = {r: (v["success"], -(v["mean_steps"] or np.inf)) for r, v in validations}
    best = load_navigator(plume_run, "best").net.extra["progress"]["round"]
    assert ranks[best] == max(ranks.values())
    assert best == min(r for r, rank in ranks.items() if rank == ranks[best])


def test_the_average_acts_and_the_network_learns_on(tmp_path, start):
    train(start("parallel", tmp_path / "run"))
    navigator = load_navigator(tmp_path / "run")
    raw = TASK.load(tmp_path / "run")
    flat = np.concatenate([p.detach().numpy().ravel() for p in raw.model.parameters()])
    assert not np.allclose(np.sort(flat), np.sort(navigator.policy.network.values))
    np.testing.assert_array_equal(navigator.policy.network.values, navigator.net.extra["average"].numpy())


def test_a_checkpoint_of_another_observation_is_refused(tmp_path, start):
    for observation in ("memory", "onehot"):
        run = start("policy-gradient", tmp_path / observation, observation=observation)
        begin(run).round()
        run.close()
    shutil.rmtree(tmp_path / "memory" / "checkpoints")
    (tmp_path / "onehot" / "checkpoints").rename(tmp_path / "memory" / "checkpoints")
    for use in (load_navigator, lambda folder: begin(Run.open(folder))):
        with pytest.raises(CheckpointError, match=r"last.*('onehot'|does not fit)") as caught:
            use(tmp_path / "memory")
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda held: held["config"].update(learner="dog"), "'dog'"),
        (lambda held: held["config"].update(width="wide"), "width .*'wide'"),
        (lambda held: held["config"].update(lanes=-1), "lanes .*-1"),
        (lambda held: held.pop("config"), "config"),
        (lambda held: held.pop("world"), "world"),
        (lambda held: held["world"].update(max_steps="many"), "max_steps"),
        (lambda held: held.update(config=3), "config.json"),
        (lambda held: held.update(world=[]), "config.json"),
    ],
)
def test_a_damaged_configuration_is_refused_in_one_line(damage, message, tmp_path, plume_run):
    shutil.copytree(plume_run, tmp_path / "run")
    edit(tmp_path / "run" / "config.json", lambda held: damage(held) and None)
    with pytest.raises(RunError, match=message) as caught:
        load_navigator(tmp_path / "run")
    assert "\n" not in str(caught.value)


def test_damaged_tensors_are_refused_and_the_other_checkpoint_still_loads(tmp_path, plume_run):
    shutil.copytree(plume_run, tmp_path / "run")
    for tensors in (tmp_path / "run" / "checkpoints" / "last").glob("tensors-*"):
        tensors.write_bytes(tensors.read_bytes()[:-7])
    with pytest.raises(CheckpointError, match=r"damaged"):
        load_navigator(tmp_path / "run")
    load_navigator(tmp_path / "run", "best")


def test_what_is_refused_leaves_no_folder_behind(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="loitering .*1.5"):
        plume.train(tmp_path / "run", loitering=1.5)
    with pytest.raises(ValueError, match="'moon'"):
        plume.train(tmp_path / "run", scenario="moon")
    with pytest.raises(ValueError, match="threads .*0"):
        plume.train(tmp_path / "run", threads=0)
    assert not list(tmp_path.iterdir())


def test_a_checkpoint_without_its_learner_is_refused(tmp_path, plume_run):
    shutil.copytree(plume_run, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "last")
    shutil.copytree(tmp_path / "run" / "checkpoints" / "best", tmp_path / "run" / "checkpoints" / "last")
    with pytest.raises(ValueError, match="last") as caught:
        begin(Run.open(tmp_path / "run"))
    assert "\n" not in str(caught.value)


def test_weights_that_are_not_finite_end_the_run(tmp_path, start):
    training = begin(start("policy-gradient", tmp_path / "run"))
    training.round()
    with torch.no_grad():
        training.net.model.head.bias[0] = torch.nan
    with pytest.raises(RuntimeError, match="non-finite.*learning rate"):
        training.round()
    assert saved_round(tmp_path / "run") == 1


def test_minibatches_of_one_step_are_no_harm(tmp_path, start):
    begin(start("policy-gradient", tmp_path / "run", lanes=1, horizon=5, minibatch=4, steps=50)).round()


def test_loading_a_navigator_leaves_the_callers_random_numbers_alone(plume_run):
    torch.manual_seed(3)
    wanted = torch.rand(3)
    torch.manual_seed(3)
    load_navigator(plume_run)
    assert torch.equal(torch.rand(3), wanted)


def test_canonical_agents_have_fixed_depths(small):
    for depth in (1, 2, 3, 4):
        net = make_network(small("online", gpf=False, depth=depth, rules={}))
        assert net.depth == depth
        assert net.rules == Rules.fixed()
        assert isinstance(net.model, MLP)


def test_a_run_says_what_is_needed_to_repeat_it(tmp_path, short_world):
    world = tmp_path / "short.json"
    shutil.copy(short_world, world)
    run = TASK.create(tmp_path / "run", TASK.of({**SMALL["parallel"], "scenario": str(world), "steps": 300}))
    written = read_config(run.folder)
    assert written["world"]["max_steps"] == 30  # though the scenario's file may be gone
    assert written["config"]["gae_lambda"] == 0.95
    assert written["versions"]["torch"].split("+")[0] == torch.__version__.split("+")[0]
    world.unlink()
    train(run)
    with pytest.raises(RunError, match="exists"):
        TASK.create(tmp_path / "run", Config.of())


def test_a_navigator_is_trained_with_one_call_and_loaded_again(tmp_path, short_world):
    navigator = plume.train(tmp_path / "run", threads=1, **SMALL["policy-gradient"] | {
        "scenario": str(short_world), "steps": 500, "seed": 2,
    })  # fmt: skip
    assert navigator.config.seed == 2
    again = load(tmp_path / "run")
    np.testing.assert_array_equal(again.policy.network.values, navigator.policy.network.values)
    assert isinstance(navigator.net, gpf.GrowPruneFreeze)
    assert navigator.scenario == Scenario.of(str(short_world))
