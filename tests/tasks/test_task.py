"""What the tasks beside the plume share: a killed run ends as if it had not been; what is counted is counted right."""

import dataclasses
import json
import shlex
import shutil

import pytest
import torch

from gpf.cli_tasks import TASKS
from gpf.runs.folder import Run, RunError, read_log
from gpf.tasks import cifar10, drifting, mspacman, shakespeare
from gpf.tasks.loop import Interrupted
from gpf.tasks.rounds import create_run, gradient_flops, read_task_config, same_run

pytestmark = pytest.mark.usefixtures("one_torch_thread", "with_data", "short_tasks")

BUSY = {
    "warmup": "0", "grow_patience": "1", "grow_threshold": "100", "prune_patience": "1", "saliency_threshold": "0.01",
    "belief_threshold": "2",
}  # fmt: skip
"""Rules under which something happens in every round."""
TINY = {
    "cifar10": (cifar10, cifar10.Config(width=16, layers=3, epochs=4, images=300, rules=BUSY)),
    "baseline": (cifar10, cifar10.Config(width=16, layers=3, epochs=2, images=300, baseline=True)),
    "mspacman": (mspacman, mspacman.Config(width=8, layers=3, epochs=3, steps=130, lanes=2, games=1, rules=BUSY)),
    "mspacman-longer": (
        mspacman,
        mspacman.Config(width=8, epochs=2, steps=90, games=1, baseline=True, normalised_pixels=True),
    ),
    "shakespeare": (
        shakespeare,
        shakespeare.Config(width=8, heads=2, context=8, layers=3, batch=2, steps=6, rules=BUSY),
    ),
    "backprop": (drifting, drifting.Config(method="backprop", tasks=2, samples=320)),
    "continual-backprop": (drifting, drifting.Config(method="continual-backprop", tasks=2, samples=2400)),
    "l2-init": (drifting, drifting.Config(method="l2-init", tasks=2, samples=320)),
    "gpf": (drifting, drifting.Config(method="gpf", tasks=2, samples=4800)),
    "regression": (drifting, drifting.Config(problem="regression", method="gpf", tasks=3, samples=320)),
}


@pytest.fixture(autouse=True)
def busy_continual_backprop(monkeypatch):
    monkeypatch.setitem(drifting.STRENGTHS["permuted-mnist"], "continual-backprop", 0.01)


def lines(folder):
    """Everything that was written, but for how long it took."""
    return [
        [{key: value for key, value in line.items() if key != "seconds"} for line in read_log(folder, log)]
        for log in ("metrics", "events")
    ]


@pytest.mark.parametrize("name", TINY)
def test_a_run_that_was_killed_after_any_round_ends_as_if_it_had_not_been(name, tmp_path):
    module, config = TINY[name]
    whole = create_run(tmp_path / "whole", config)
    result = module.train(whole)
    killed = create_run(tmp_path / "killed", config)
    while not (training := module.Training(killed)).over:  # a process of its own for every round
        training.round()
    assert lines(tmp_path / "killed") == lines(tmp_path / "whole")
    again = module.train(killed)
    same = {"run", "seconds"}
    assert {k: v for k, v in again.items() if k not in same} == {k: v for k, v in result.items() if k not in same}


@pytest.mark.parametrize("name", ["cifar10", "mspacman", "shakespeare"])
def test_the_baseline_has_all_layers_from_the_start_and_the_other_grows_to_them(name, tmp_path):
    module, config = TINY[name]
    for baseline, depths in ((True, [3] * 9), (False, [1, 1, 2, 3])):
        config = dataclasses.replace(config, baseline=baseline)
        training = module.Training(create_run(tmp_path / str(baseline), config))
        seen = []
        while not training.over:
            seen.append(training.round()["depth"])
        assert seen == depths[: len(seen)]
        kinds = {event["kind"] for event in read_log(tmp_path / str(baseline), "events")}
        assert kinds == (set() if baseline else {"grown", "pruned"})


def other_test_part_of_cifar10(monkeypatch):
    parts = cifar10.three_parts

    def changed(images):
        learnt, validation, test = parts(images)
        return learnt, validation, (255 - test[0], test[1])

    monkeypatch.setattr(cifar10, "three_parts", changed)


def other_test_part_of_shakespeare(monkeypatch):
    text = shakespeare.three_parts()
    changed = dataclasses.replace(text, test=text.test.flip(0))
    monkeypatch.setattr(shakespeare, "three_parts", lambda: changed)


def other_test_games(monkeypatch):
    monkeypatch.setattr(mspacman, "TEST", mspacman.TEST + 50_000_000)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("cifar10", other_test_part_of_cifar10),
        ("shakespeare", other_test_part_of_shakespeare),
        ("mspacman", other_test_games),
    ],
)
def test_nothing_but_the_report_depends_on_what_is_reported_on(name, change, tmp_path, monkeypatch):
    module, config = TINY[name]
    result = module.train(create_run(tmp_path / "one", config))
    change(monkeypatch)
    other = module.train(create_run(tmp_path / "other", config))

    def without_test(folder):
        metrics, events = lines(folder)
        return [{key: value for key, value in line.items() if key != "test"} for line in metrics], events

    assert without_test(tmp_path / "one") == without_test(tmp_path / "other")
    assert result["validation"] == other["validation"]
    assert result["test"] != other["test"]


@pytest.mark.parametrize("name", TINY)
def test_what_is_said_after_ctrl_c_is_a_command_that_there_is(name, tmp_path, monkeypatch):
    module, config = TINY[name]

    def interrupted(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(module.Training, "round", interrupted)
    with pytest.raises(Interrupted, match="^saved; go on with: gpf train ") as said:
        module.train(create_run(tmp_path / "a run", config))
    task, flag, folder = shlex.split(str(said.value).partition("gpf train ")[2])
    assert task in TASKS
    assert (flag, folder) == ("--resume", str(tmp_path / "a run"))


def test_the_result_is_of_the_network_as_the_last_round_left_it(tmp_path):
    config = cifar10.Config(width=16, layers=9, epochs=3, images=300, rules=BUSY)
    result = cifar10.train(create_run(tmp_path / "run", config))
    net = cifar10.load(tmp_path / "run")
    assert result["depth"] == net.depth == read_log(tmp_path / "run", "metrics")[-1]["depth"] + 1
    left = sum(int(parameter.count_nonzero()) for parameter in net.model.parameters())
    assert result["parameters"] == left + 16 * 16  # zeros of the layer that has just grown: identity and biases


def test_a_folder_of_another_run_is_refused(tmp_path):
    config = cifar10.Config(images=10)
    create_run(tmp_path / "run", config).close()
    assert same_run(tmp_path / "run", config)
    assert not same_run(tmp_path / "run", dataclasses.replace(config, seed=1))
    assert not same_run(tmp_path / "run", dataclasses.replace(config, rules={"warmup": "1"}))
    with pytest.raises(RunError, match=r"of task 'cifar10'; accepted: one of task 'mspacman'$"):
        read_task_config(tmp_path / "run", mspacman.Config)
    written = json.loads((tmp_path / "run" / "config.json").read_text())
    written["config"]["colour"] = "red"
    (tmp_path / "run" / "config.json").write_text(json.dumps(written))
    with pytest.raises(RunError, match=r"config.json is damaged \(TypeError.*accepted: as it was written$"):
        read_task_config(tmp_path / "run", cifar10.Config)


def test_a_run_without_its_last_checkpoint_is_refused_instead_of_begun_anew(tmp_path):
    module, config = TINY["cifar10"]
    run = create_run(tmp_path / "run", config)
    training = module.Training(run)
    training.round()
    training.round()
    shutil.rmtree(run.checkpoint("last"))
    run.close()
    with pytest.raises(RunError, match=r"last is missing; accepted: a run with its last checkpoint"):
        module.Training(Run.open(tmp_path / "run"))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (cifar10.Config(epochs=0), r"^epochs: 0; accepted: at least 1$"),
        (cifar10.Config(learning_rate=-1.0), r"^learning_rate: -1.0; accepted: at least 0$"),
        (cifar10.Config(seed=-1), r"^seed: -1; accepted: at least 0$"),
        (cifar10.Config(rules={"colour": "red"}), r"^rules: unknown field 'colour'; accepted: those of gpf.Rules$"),
        (cifar10.Config(images=60_000), r"^images: 60,000; accepted: at most 50,000$"),
        (shakespeare.Config(heads=7), r"^heads: 7; accepted: a divisor of the width, 64$"),
        (drifting.Config(method="hope"), r"^method: 'hope'; accepted: backprop, continual-backprop"),
        (drifting.Config(problem="life"), r"^problem: 'life'; accepted: permuted-mnist, regression$"),
    ],
)
def test_what_cannot_be_is_refused_and_leaves_no_folder_behind(config, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        create_run(tmp_path / "run", config)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["cifar10", "mspacman", "shakespeare", "backprop", "regression"])
def test_a_loss_that_is_no_number_ends_the_run_with_what_to_change(name, tmp_path):
    """Also where the rules look at points, or at hits, which are numbers whatever the weights are."""
    module, config = TINY[name]
    with pytest.raises(RuntimeError, match=r"^learning_rate: 1e\+30; the loss is no number any more"):
        module.train(create_run(tmp_path / "run", dataclasses.replace(config, learning_rate=1e30)))


def test_operations_of_a_gradient_step_by_hand():
    # Forwards 2 a weight. Backwards, 2 for each weight that learns, and 2 to pass on to a layer before that learns.
    assert gradient_flops([10, 20]) == 2 * 30 + 2 * 30 + 2 * 20
    assert gradient_flops([10, 20], frozen=[0]) == 2 * 30 + 2 * 20
    assert gradient_flops([10, 20], frozen=[1]) == 2 * 30 + 2 * 10 + 2 * 20
    assert gradient_flops([10, 20], frozen=[0, 1]) == 2 * 30


def test_networks_are_kept_after_each_growth_only(tmp_path):
    module, config = TINY["cifar10"]
    run = create_run(tmp_path / "run", config)
    module.train(run)
    grown = [event for event in read_log(run.folder, "events") if event["kind"] == "grown"]
    assert len(grown) == 2
    assert len(list((run.folder / "spectra").glob("*.safetensors"))) == 2
    assert torch.get_num_threads() == 1
