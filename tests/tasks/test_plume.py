"""Training runs: the same every time, whatever interrupts them."""

import dataclasses
import json
import os
import random
import shutil
import signal
import time

import numpy as np
import pytest
import torch

import gpf
from gpf.navigation.agents import load_navigator, make_learner, make_model, make_network
from gpf.navigation.config import Config
from gpf.navigation.evaluate import evaluate
from gpf.network import MLP, CheckpointError, Rules
from gpf.plume import Scenario
from gpf.runs.folder import Run, RunError, read_log, read_result
from gpf.tasks import plume
from gpf.tasks.loop import Interrupted
from gpf.tasks.plume import Training, create_run, train

pytestmark = pytest.mark.usefixtures("one_torch_thread")

RULES = {
    "warmup": "0", "grow_patience": "2", "grow_threshold": "0.5", "grow_trial": "8", "prune_patience": "3",
    "belief_threshold": "2.0", "freeze_patience": "5", "freeze_delta": "1.0", "freeze_fraction": "0.5",
}  # fmt: skip
"""Everything happens: layers grow, are pruned, fail their trial and are taken out again, and freeze."""
SMALL = {
    "policy-gradient": Config(width=16, lanes=8, horizon=16, steps=6000, minibatch=64, rules=RULES),
    "parallel": Config(learner="parallel", width=16, lanes=8, horizon=16, steps=6000, rules=RULES),
    "online": Config(learner="online", width=16, episodes=30, rules={**RULES, "grow_patience": "4"}),
}
"""A second of training, in which the network grows and is pruned."""


@pytest.fixture(autouse=True)
def brief(monkeypatch, tmp_path):
    """Few episodes of few steps, and rounds short enough that there are many."""
    monkeypatch.setattr(plume, "EPISODES", 20)
    monkeypatch.setattr(plume, "PATHS", 3)
    monkeypatch.setattr(plume, "VALIDATION_EPISODES", dict.fromkeys(SMALL, 10))
    monkeypatch.setattr(plume, "EPOCHS_IN_A_ROUND", dict.fromkeys(SMALL, 5))
    monkeypatch.setattr(plume, "ROUNDS_BETWEEN_VALIDATIONS", dict.fromkeys(SMALL, 2))
    monkeypatch.setattr(plume, "RECENT", 20)
    (tmp_path / "short.json").write_text(
        json.dumps({"preset": "reference", "max_steps": 30, "start_distance_max": 3.0})
    )


def small(learner, tmp_path, **changes):
    return dataclasses.replace(SMALL[learner], scenario=str(tmp_path / "short.json"), **changes)


def start(learner, folder, tmp_path, **changes):
    return create_run(folder, small(learner, tmp_path, **changes))


def what_happened(folder):
    """Everything that a run has written, but for the clock."""
    clocks = ("seconds", "steps_per_second")
    lines = [
        [{key: value for key, value in line.items() if key not in clocks} for line in read_log(folder, log)]
        for log in ("metrics", "events")
    ]
    result = read_result(folder)
    results = {name: {a: without(s, clocks) for a, s in by.items()} for name, by in result["checkpoints"].items()}
    tensors = gpf.load(folder / "checkpoints" / "last", build=lambda: model_of(folder)).model.state_dict()
    return lines, results, {name: tensor.tolist() for name, tensor in tensors.items()}


def without(values, names):
    return {key: value for key, value in values.items() if key not in names}


def model_of(folder):
    config = json.loads((folder / "config.json").read_text())["config"]
    return make_model(Config(**{**config, "without": tuple(config["without"])}))


@pytest.mark.parametrize("learner", SMALL)
@pytest.mark.parametrize("observation", ["memory", "onehot"])
def test_the_same_seed_gives_the_same_run_and_interruptions_change_nothing(learner, observation, tmp_path):
    for name in ("whole", "pieces"):
        start(learner, tmp_path / name, tmp_path, observation=observation).close()
    train(Run.open(tmp_path / "whole"), threads=2)
    for _ in range(3):
        run = Run.open(tmp_path / "pieces")
        training = Training(run, threads=1)
        training.round()
        training.round()
        run.append("metrics", [{"round": training.progress["round"] + 1, "left": "by a process that was killed"}])
        run.close()
    train(Run.open(tmp_path / "pieces"), threads=1)
    whole, pieces = what_happened(tmp_path / "whole"), what_happened(tmp_path / "pieces")
    assert whole == pieces
    assert {event["kind"] for event in whole[0][1]} == {"grown", "pruned", "frozen", "undone"}


def test_another_seed_gives_another_run(tmp_path):
    for seed in (0, 1):
        train(start("policy-gradient", tmp_path / str(seed), tmp_path, seed=seed))
    assert what_happened(tmp_path / "0")[2] != what_happened(tmp_path / "1")[2]


@pytest.mark.parametrize(("learner", "longer"), [("policy-gradient", {"steps": 20_000}), ("online", {"episodes": 150})])
def test_killed_twenty_times_a_run_loses_nothing_and_ends_the_same(learner, longer, tmp_path):
    """SIGKILL at random moments, of a process that has everything loaded, so that most moments are of training."""
    for name in ("whole", "killed"):
        start(learner, tmp_path / name, tmp_path, **longer).close()
    began = time.perf_counter()
    train(Run.open(tmp_path / "whole"), threads=1)
    pace = (time.perf_counter() - began) / saved_round(tmp_path / "whole")
    began = time.perf_counter()
    Training(Run.open(tmp_path / "whole"), threads=1)
    setup = time.perf_counter() - began
    chance, rounds, longest = random.Random(0), [0], 2.0 * setup + 2.0 * pace
    for _ in range(20):
        child = os.fork()
        if child == 0:
            try:
                train(Run.open(tmp_path / "killed"), threads=1)
            finally:
                os._exit(0)
        time.sleep(chance.uniform(0.5 * setup, longest))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        rounds.append(saved_round(tmp_path / "killed"))
        if rounds[-1] == rounds[-2] < saved_round(tmp_path / "whole"):
            longest *= 1.3  # the machine is busier than it was
    assert rounds == sorted(rounds)
    assert len(set(rounds)) > 2  # kills fell into different rounds
    train(Run.open(tmp_path / "killed"), threads=1)
    assert what_happened(tmp_path / "killed") == what_happened(tmp_path / "whole")


def saved_round(folder):
    """The round of the last checkpoint, 0 while there is none."""
    manifest = folder / "checkpoints" / "last" / "manifest.json"
    return json.loads(manifest.read_text())["extra"]["progress"]["round"] if manifest.exists() else 0


def test_ctrl_c_ends_the_round_saves_and_says_how_to_go_on(tmp_path):
    run = start("policy-gradient", tmp_path / "run", tmp_path)

    def press(metrics):
        if metrics["round"] == 3:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted, match=f"saved; go on with: gpf train --resume {tmp_path / 'run'}"):
        train(run, threads=1, report=press)
    assert saved_round(run.folder) == len(read_log(run.folder, "metrics")) == 3
    run.close()
    train(Run.open(tmp_path / "run"), threads=1)
    train(start("policy-gradient", tmp_path / "whole", tmp_path))
    assert what_happened(tmp_path / "run") == what_happened(tmp_path / "whole")


@pytest.mark.parametrize("learner", SMALL)
def test_rules_under_which_nothing_happens_are_as_good_as_no_gpf(learner, tmp_path):
    """An agent without GPF is one whose network was never attached: the same bits, epoch by epoch."""
    config = small(learner, tmp_path, gpf=False, rules={}).resolved()
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


def test_pruned_weights_stay_pruned_to_the_end(tmp_path):
    for learner in SMALL:
        rules = {**SMALL[learner].rules, "grow_trial": "null", "freeze_patience": "null"}
        result = train(start(learner, tmp_path / learner, tmp_path, rules=rules))
        navigator = load_navigator(tmp_path / learner)
        assert result["density"] < 1.0
        assert navigator.net.density == result["density"]
        for layer in navigator.net.layers:
            for weight in layer.weights:
                if weight.pruned is not None:
                    assert not weight.parameter.detach()[weight.pruned].any()


def test_what_is_planned_happens_when_it_is_planned_and_nothing_else(tmp_path):
    plan = ("6:grow", "8:keep=0.5", "13:grow", "14:keep=0.25")
    for learner in SMALL:
        run = start(learner, tmp_path / learner, tmp_path, rules={"freeze_patience": "null"}, plan=plan)
        Training(run, threads=1).round()
        result = train(run, threads=1)  # from another process, as it were
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


def test_a_result_is_that_of_the_checkpoints_on_held_out_episodes(tmp_path):
    run = start("policy-gradient", tmp_path / "run", tmp_path, seed=3)
    result = train(run)
    assert {"run", "success", "low", "high", "mean_steps", "depth", "density", "frozen", "seconds"} <= result.keys()
    for name in ("last", "best"):
        for acting in ("greedy", "sampled"):
            navigator = load_navigator(tmp_path / "run", name, acting)
            again = evaluate(navigator.policy, navigator.scenario, 20, plume.HELD_OUT + 3 * plume.BLOCK)
            assert again.summary()["success"] == result["checkpoints"][name][acting]["success"]
    assert result["success"] == result["checkpoints"]["last"]["sampled"]["success"]
    assert read_result(tmp_path / "run") == json.loads(json.dumps(result))
    for figure in ("training.png", "trajectories.png"):
        assert (tmp_path / "run" / "figures" / figure).read_bytes().startswith(b"\x89PNG")


def test_the_best_checkpoint_is_that_of_the_best_validation(tmp_path):
    run = start("policy-gradient", tmp_path / "run", tmp_path)
    train(run)
    validations = [
        (line["round"], line["validation"]) for line in read_log(run.folder, "metrics") if line["validation"]
    ]
    ranks = {r: (v["success"], -(v["mean_steps"] or np.inf)) for r, v in validations}
    best = load_navigator(tmp_path / "run", "best").net.extra["progress"]["round"]
    assert ranks[best] == max(ranks.values())
    assert best == min(r for r, rank in ranks.items() if rank == ranks[best])


def test_the_average_acts_and_the_network_learns_on(tmp_path):
    train(start("parallel", tmp_path / "run", tmp_path))
    navigator = load_navigator(tmp_path / "run")
    raw = gpf.load(tmp_path / "run" / "checkpoints" / "last", build=lambda: model_of(tmp_path / "run"))
    flat = np.concatenate([p.detach().numpy().ravel() for p in raw.model.parameters()])
    assert not np.allclose(np.sort(flat), np.sort(navigator.policy.network.values))
    np.testing.assert_array_equal(navigator.policy.network.values, navigator.net.extra["average"].numpy())


def test_a_checkpoint_of_another_observation_is_refused(tmp_path):
    for observation in ("memory", "onehot"):
        run = start("policy-gradient", tmp_path / observation, tmp_path, observation=observation, steps=500)
        train(run)
        run.close()
    (tmp_path / "memory" / "checkpoints").rename(tmp_path / "aside")
    (tmp_path / "onehot" / "checkpoints").rename(tmp_path / "memory" / "checkpoints")
    for use in (load_navigator, lambda folder: Training(Run.open(folder))):
        with pytest.raises(
            CheckpointError, match=r"^checkpoint: .*last .*(of observation 'onehot'|does not fit)"
        ) as caught:
            use(tmp_path / "memory")
        assert "\n" not in str(caught.value)


def test_damaged_runs_are_refused_in_one_line(tmp_path):
    run = start("policy-gradient", tmp_path / "run", tmp_path, steps=500)
    train(run)
    run.close()
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    for damage, message in [
        ({**config, "config": {**config["config"], "learner": "dog"}}, "learner: 'dog'"),
        ({key: value for key, value in config.items() if key != "world"}, "run: .* is damaged"),
        ({**config, "config": 3}, "run: .* is damaged"),
    ]:
        (tmp_path / "run" / "config.json").write_text(json.dumps(damage))
        with pytest.raises(ValueError, match=f"^{message}"):
            load_navigator(tmp_path / "run")
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    for tensors in (tmp_path / "run" / "checkpoints" / "last").glob("tensors-*"):
        tensors.write_bytes(tensors.read_bytes()[:-7])
    with pytest.raises(CheckpointError, match=r"^checkpoint: .* is damaged"):
        load_navigator(tmp_path / "run")
    load_navigator(tmp_path / "run", "best")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            Config(learner="online", lanes=4),
            "lanes: 4; accepted: only with --learner policy-gradient, parallel, not online",
        ),
        (Config(episodes=5), "episodes: 5; accepted: only with --learner online, not policy-gradient"),
        (Config(q_learning=True), "q_learning: True; accepted: only with --learner parallel, online, not policy"),
        (Config(critic="memory"), "critic: 'memory'; accepted with --observation memory: shared"),
        (Config(critic="god"), "critic: 'god'; accepted: shared, memory"),
        (Config(learner="parallel", critic="shared"), "critic: shared; accepted: only with --learner policy-gradient"),
        (Config(observation="raw"), "observation: 'raw'; accepted: memory, onehot"),
        (Config(reward="gold"), "reward: 'gold'; accepted: search, paper, reference"),
        (Config(learner="parallel", averaging=1.0), "averaging: 1.0; accepted: below 1"),
        (Config(depth=3), "depth: 3; accepted: less than the rules' max_depth, 3, or --no-gpf"),
        (Config(learner="parallel", acting="sampled"), "acting: 'sampled'; accepted by --learner parallel: greedy"),
        (
            Config(learner="online", reward="paper", loitering=0.3),
            "loitering: 0.3; accepted: only with --reward search",
        ),
        (Config(gpf=False, rules={"max_depth": "2"}), "rules: .*; accepted: only with --gpf"),
        (Config(gpf=False, plan=("3:grow",)), "plan: .*; accepted: only with --gpf"),
        (Config(plan=("grow",)), "plan: 'grow'; accepted: EPOCH:grow, or EPOCH:keep=SHARE"),
        (Config(plan=("3:keep=1.5",)), "plan: '3:keep=1.5'; accepted: EPOCH:grow"),
        (Config(rules={"max_dept": "2"}), "rules: unknown field 'max_dept'"),
        (Config(rules={"max_depth": "deep"}), "max_depth: 'deep'"),
        (
            Config(observation="onehot", without=("clock",)),
            "without: 'clock'; accepted: only with observation 'memory'",
        ),
        (Config(steps=0), "steps: 0; accepted: at least 1"),
        (Config(discount=1.5), "discount: 1.5; accepted: 0 to 1"),
        (Config(learning_rate=-1.0), "learning_rate: -1.0; accepted: a number of at least 0"),
        (Config(lanes=1 << 20), "lanes: 1048576; accepted: at most 65536"),
        (Config(seed=-1), "seed: -1; accepted: 0 to"),
    ],
)
def test_impossible_settings_are_refused_in_one_line(config, message):
    with pytest.raises(ValueError, match=f"^{message}") as caught:
        config.resolved()
    assert "\n" not in str(caught.value)


def test_rewards_of_the_other_learners_need_no_loitering():
    for reward in ("paper", "reference"):
        assert Config(learner="parallel", reward=reward).resolved().loitering == 0.0


def test_what_is_refused_leaves_no_folder_behind(tmp_path):
    with pytest.raises(ValueError, match="^loitering: 1.5; accepted"):
        create_run(tmp_path / "run", Config(loitering=1.5))
    assert not (tmp_path / "run").exists()


def test_a_run_that_has_lost_its_checkpoint_is_not_begun_anew(tmp_path):
    run = start("policy-gradient", tmp_path / "run", tmp_path, steps=3000)
    train(run)
    run.close()
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "last")
    before = (tmp_path / "run" / "metrics.jsonl").read_text()
    with pytest.raises(RunError, match="^run: .*last is missing"):
        Training(Run.open(tmp_path / "run"))
    assert (tmp_path / "run" / "metrics.jsonl").read_text() == before


def test_a_checkpoint_without_its_learner_is_refused(tmp_path):
    run = start("policy-gradient", tmp_path / "run", tmp_path, steps=3000)
    train(run)
    run.close()
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "last")
    shutil.copytree(tmp_path / "run" / "checkpoints" / "best", tmp_path / "run" / "checkpoints" / "last")
    with pytest.raises(ValueError, match="^(run|optimizer|checkpoint): ") as caught:
        Training(Run.open(tmp_path / "run"))
    assert "\n" not in str(caught.value)


def test_weights_that_are_no_numbers_end_the_run(tmp_path):
    training = Training(start("policy-gradient", tmp_path / "run", tmp_path))
    training.round()
    with torch.no_grad():
        training.net.model.head.bias[0] = torch.nan
    with pytest.raises(RuntimeError, match="^learning_rate: 0.002; the weights are no numbers any more"):
        training.round()
    assert saved_round(tmp_path / "run") == 1


def test_minibatches_of_one_step_are_no_harm(tmp_path):
    training = Training(start("policy-gradient", tmp_path / "run", tmp_path, lanes=1, horizon=5, minibatch=4, steps=50))
    training.round()


def test_loading_a_navigator_leaves_the_callers_random_numbers_alone(tmp_path):
    train(start("policy-gradient", tmp_path / "run", tmp_path, steps=500))
    torch.manual_seed(3)
    wanted = torch.rand(3)
    torch.manual_seed(3)
    load_navigator(tmp_path / "run")
    assert torch.equal(torch.rand(3), wanted)


def test_canonical_agents_have_fixed_depths(tmp_path):
    for depth in (1, 2, 3, 4):
        net = make_network(small("online", tmp_path, gpf=False, depth=depth, rules={}).resolved())
        assert net.depth == depth
        assert net.rules == Rules.fixed()
        assert isinstance(net.model, MLP)


def test_a_run_says_what_is_needed_to_repeat_it(tmp_path):
    run = start("parallel", tmp_path / "run", tmp_path)
    assert run.config["world"]["max_steps"] == 30  # though the scenario's file may be gone
    assert run.config["config"]["trace"] == 0.95
    assert run.config["versions"]["torch"] == torch.__version__.split("+")[0] or "+" in run.config["versions"]["torch"]
    (tmp_path / "short.json").unlink()
    train(run)
    with pytest.raises(RunError, match="exists"):
        create_run(tmp_path / "run", Config())
