"""What the tasks have in common: a killed run ends as if it had not been; what is counted is counted right."""

import dataclasses
import json

import pytest
from support import BUSY, final, logs, without

from gpf.runs.folder import RunError, read_log
from gpf.tasks import REGISTRY, cifar10, drifting, find_task, mspacman, shakespeare, task_of
from gpf.tasks.task import gradient_flops

pytestmark = pytest.mark.usefixtures("one_torch_thread", "loaded_data")

SHORT_TEXT = {
    "width": 8, "heads": 2, "context": 8, "batch": 2, "steps": 6, "round_steps": 2, "validation_windows": 2,
    "test_tokens": 600,
}  # fmt: skip
TINY = {
    "cifar10": ("cifar10", {"width": 16, "layers": 3, "epochs": 4, "images": 300, "rules": BUSY}),
    "baseline": ("cifar10", {"width": 16, "layers": 3, "epochs": 2, "images": 300, "baseline": True}),
    "mspacman": (
        "mspacman", {"width": 8, "layers": 3, "epochs": 3, "steps": 90, "lanes": 2, "games": 1, "rules": BUSY}
    ),
    "mspacman-longer": (
        "mspacman-longer",
        {
            "width": 8, "epochs": 2, "steps": 40, "games": 1, "lanes": 1, "batch": 4, "baseline": True,
            "random_lanes": 1, "random_steps": 20,
        },
    ),
    "shakespeare": ("shakespeare", {**SHORT_TEXT, "layers": 3, "rules": BUSY}),
    "backprop": ("permuted-mnist", {"method": "backprop", "tasks": 2, "samples": 320}),
    "continual-backprop": (
        "permuted-mnist", {"method": "continual-backprop", "tasks": 2, "samples": 2400, "strength": 0.01}
    ),
    "l2-init": ("permuted-mnist", {"method": "l2-init", "tasks": 2, "samples": 320}),
    "gpf": ("permuted-mnist", {"method": "gpf", "tasks": 2, "samples": 4800}),
    "reset-on-change": ("permuted-mnist", {"method": "reset-on-change", "tasks": 2, "samples": 4800}),
    "regression": ("regression", {"method": "gpf", "tasks": 3, "samples": 320}),
}  # fmt: skip


def tiny(name, **changes):
    """A task, and short settings of it."""
    task, settings = TINY[name]
    return find_task(task), find_task(task).of({**settings, **changes})


def trained(folder, task, config):
    run = task.create(folder, config)
    result = task.train(run)
    run.close()
    return result


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The place of finished runs, and those that there are."""
    return tmp_path_factory.mktemp("whole"), {}


@pytest.fixture
def wholes(made, loaded_data):
    """Finished runs, each trained when it is first asked for; to read."""
    place, runs = made

    def whole(name):
        if name not in runs:
            runs[name] = place / name, trained(place / name, *tiny(name))
        return runs[name]

    return whole


@pytest.mark.parametrize("name", TINY)
def test_a_run_that_was_killed_after_any_round_ends_as_if_it_had_not_been(name, tmp_path, wholes):
    task, config = tiny(name)
    whole, result = wholes(name)
    killed = task.create(tmp_path / "killed", config)
    while not (training := task.training(killed, config, None)).over:  # a process of its own for every round
        training.round()
    assert final(tmp_path / "killed") == final(whole)
    assert without(task.train(killed), "seconds") == without(result, "seconds")


@pytest.mark.parametrize("name", ["cifar10", "mspacman", "shakespeare"])
def test_the_baseline_has_all_layers_from_the_start_and_the_other_grows_to_them(name, tmp_path, wholes):
    whole, _ = wholes(name)
    shorter = {"steps": 10} if name == "mspacman" else {}
    trained(tmp_path / "baseline", *tiny(name, baseline=True, **shorter))
    for folder, depths, wanted in (
        (tmp_path / "baseline", [3] * 9, set()), (whole, [1, 1, 2, 3], {"grown", "pruned"}),
    ):  # fmt: skip
        seen = [line["depth"] for line in read_log(folder, "metrics")]
        assert seen == depths[: len(seen)]
        assert {event["kind"] for event in read_log(folder, "events")} == wanted


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
def test_nothing_but_the_report_depends_on_what_is_reported_on(name, change, tmp_path, monkeypatch, wholes):
    whole, result = wholes(name)
    change(monkeypatch)
    other = trained(tmp_path / "other", *tiny(name))

    def without_test(folder):
        metrics, events = logs(folder)
        return [without(line, "test") for line in metrics], events

    assert without_test(whole) == without_test(tmp_path / "other")
    assert result["validation"] == other["validation"]
    assert result["test"] != other["test"]


def test_the_result_is_of_the_network_as_the_last_round_left_it(tmp_path):
    task, config = tiny("cifar10", layers=9, epochs=3)
    result = trained(tmp_path / "run", task, config)
    net = task.load(tmp_path / "run")
    assert result["depth"] == net.depth == read_log(tmp_path / "run", "metrics")[-1]["depth"] + 1
    left = sum(int(parameter.count_nonzero()) for parameter in net.model.parameters())
    assert result["parameters"] == left + 16 * 16  # zeros of the layer that has just grown: identity and biases


def test_every_registered_task_is_found_by_its_name_its_reference_and_its_runs(wholes):
    for name, reference in REGISTRY.items():
        task = find_task(name)
        assert (task.name, task.reference, task.address) == (name, reference, name)
        assert find_task(reference) is task
    assert task_of(wholes("regression")[0]) is drifting.REGRESSION


def test_what_is_no_task_is_refused_in_one_line(tmp_path):
    for name, message in (
        ("chess", "unknown task 'chess'"),
        ("cifar", "did you mean 'cifar10'"),
        ("gpf.tasks.cifar10:LEAN", "must be a gpf.tasks.task.Task, got dict"),
        ("nowhere:TASK", "'nowhere:TASK' cannot be imported"),
    ):
        with pytest.raises(ValueError, match=message):
            find_task(name)
    (tmp_path / "config.json").write_text('{"task": "chess"}')
    with pytest.raises(RunError, match="unknown task 'chess'"):
        task_of(tmp_path)


def test_a_folder_of_another_run_is_refused(tmp_path):
    task, config = tiny("cifar10", images=10)
    folder = tmp_path / "run"
    task.create(folder, config).close()
    task.check_same(folder, config)
    for changes in ({"seed": 1}, {"rules": {"warmup": "1"}}):
        with pytest.raises(RunError, match="has other settings"):
            task.check_same(folder, dataclasses.replace(config, **changes))
    with pytest.raises(RunError, match=r"of task 'mspacman', got one of 'cifar10'$"):
        mspacman.TASK.read(folder)
    written = json.loads((folder / "config.json").read_text())
    written["config"]["colour"] = "red"
    (folder / "config.json").write_text(json.dumps(written))
    with pytest.raises(RunError, match=r"config.json is damaged \(unknown setting 'colour'"):
        task.read(folder)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("cifar10", {"epochs": 0}, "epochs .*0$"),
        ("cifar10", {"epochs": 1.5}, "epochs .*1.5$"),
        ("cifar10", {"learning_rate": -1.0}, "learning_rate .*-1"),
        ("cifar10", {"learning_rate": float("nan")}, "learning_rate .*nan"),
        ("cifar10", {"seed": -1}, "seed .*-1"),
        ("cifar10", {"rules": {"colour": "red"}}, "rule 'colour'"),
        ("cifar10", {"colour": "red"}, "setting 'colour'"),
        ("cifar10", {"images": 60_000}, "images.*60,000"),
        ("shakespeare", {"heads": 7}, "heads.*7"),
        ("shakespeare", {"round_steps": 0}, "round_steps .*0"),
        ("mspacman", {"random_lanes": 0}, "random_lanes .*0"),
        ("backprop", {"method": "hope"}, "method .*backprop.*'hope'"),
        ("backprop", {"problem": "life"}, "problem .*permuted-mnist.*'life'"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line_and_leaves_no_folder_behind(name, changes, message, tmp_path):
    with pytest.raises(ValueError, match=message) as caught:
        trained(tmp_path / "run", *tiny(name, **changes))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["cifar10", "mspacman", "shakespeare", "backprop", "regression"])
def test_a_loss_that_is_not_finite_ends_the_run_with_what_to_change(name, tmp_path):
    """Also where the rules look at points, or at hits, which are numbers whatever the weights are."""
    with pytest.raises(RuntimeError, match=r"non-finite.*learning rate below 1e\+30"):
        trained(tmp_path / "run", *tiny(name, learning_rate=1e30))


def test_operations_of_a_gradient_step_by_hand():
    # Forwards 2 a weight. Backwards, 2 for each weight that learns, and 2 to pass on to a layer before that learns.
    assert gradient_flops([10, 20]) == 2 * 30 + 2 * 30 + 2 * 20
    assert gradient_flops([10, 20], frozen=[0]) == 2 * 30 + 2 * 20
    assert gradient_flops([10, 20], frozen=[1]) == 2 * 30 + 2 * 10 + 2 * 20
    assert gradient_flops([10, 20], frozen=[0, 1]) == 2 * 30


def test_networks_are_kept_after_each_growth_only(wholes):
    folder, _ = wholes("cifar10")
    grown = [event for event in read_log(folder, "events") if event["kind"] == "grown"]
    assert len(grown) == 2
    assert len(list((folder / "spectra").glob("*.safetensors"))) == 2


def test_loading_a_network_leaves_the_callers_random_numbers_alone(wholes):
    import torch

    folder, _ = wholes("cifar10")
    torch.manual_seed(3)
    wanted = torch.rand(3)
    torch.manual_seed(3)
    cifar10.TASK.load(folder)
    assert torch.equal(torch.rand(3), wanted)
