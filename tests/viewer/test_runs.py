import base64
import json
import shutil
import time

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from made_runs import EVENTS, ROUNDS, STEPS, MadeRun, save_transformer
from safetensors.torch import load_file
from scipy import stats
from starlette.testclient import TestClient

from gpf.runs.folder import RunError
from gpf.viewer.app import make_app
from gpf.viewer.comparison import compare
from gpf.viewer.curves import MOST_POINTS, thin, visits_of
from gpf.viewer.live import Follower
from gpf.viewer.networks import LARGEST, MOST_CELLS, extremes, network
from gpf.viewer.runs import describe

numbers = st.floats(-1e6, 1e6)
WORDS = (
    "step round epoch loss visits ended found regime frozen plasticity name depth before after layers kind reason"
    " weights pruned parameters seed"
).split()
"""Keys of which lines are made that a viewer might trip over."""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A finished run; to read, or to copy."""
    return MadeRun(tmp_path_factory.mktemp("made") / "run-900").finish()


@pytest.fixture
def copied(made, tmp_path):
    return shutil.copytree(made, tmp_path / "copy")


def curve(described, key):
    (found,) = [one for one in described["curves"] if one["key"] == key]
    return found


def cells(drawn):
    return np.frombuffer(base64.b64decode(drawn["values"]), np.int8).reshape(drawn["cells"])


def test_a_run_is_described_by_its_numbers_curves_and_events(made):
    run = describe(made)
    assert (run["task"], run["seed"], run["state"], run["unit"]) == ("made", 900, "finished", "step")
    loss = curve(run, "loss")
    assert loss["x"] == [STEPS * n for n in range(1, ROUNDS + 1)]
    assert loss["y"] == pytest.approx([1 / n for n in range(1, ROUNDS + 1)])
    assert len(curve(run, "validation.success")["x"]) == ROUNDS // 2  # it is measured in every other round
    assert curve(run, "frozen")["y"] == [0] * 8 + [1] * 4
    assert [event["x"] / STEPS for event in run["events"]] == list(EVENTS)
    assert all(
        event["reason"].endswith(reason) for event, (_, reason) in zip(run["events"], EVENTS.values(), strict=True)
    )
    assert [event["after"]["depth"] for event in run["events"]] == [2, 2, 2]
    assert run["events"][1]["after"]["density"] < 1 == run["events"][1]["before"]["density"]
    assert run["problems"] == []
    assert curve(run, "plasticity:layers.1.linear:dead")["y"] == pytest.approx([0.1] * 10)  # it grew in round 3


def test_everything_of_a_run_is_strict_json_whatever_its_logs_hold(copied):
    with (copied / "metrics.jsonl").open("a") as file:
        file.write('{"round": 13, "step": 1300, "loss": NaN, "other": [1, {"a": Infinity}], "deep": {"a": {"b": 1}}}\n')
        file.write('{"round": "x", "step": 1e999, "loss": 1e400}\n[1]\nnull\n{broken\n')
    with (copied / "events.jsonl").open("a") as file:
        file.write('{"kind": 7, "layers": "all", "before": [], "after": {"frozen": [1, "x"]}, "reason": null}\n')
    run = describe(copied)
    json.dumps(run, allow_nan=False)
    assert run["problems"] == ["metrics.jsonl has 3 lines that are not JSON objects; they are left out"]
    assert len(curve(run, "loss")["x"]) == ROUNDS
    assert curve(run, "deep.a.b")["y"] == [1]
    assert run["events"][-1]["after"]["frozen"] == [1]


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=4),
    max_leaves=8,
)
lines = st.lists(st.dictionaries(st.sampled_from(WORDS), anything, max_size=8), max_size=4)


@given(
    config=st.dictionaries(st.sampled_from(["task", "config", "rules", "world"]), anything), metrics=lines, events=lines
)
@example(config={}, metrics=[{"visits": [{"step": 0}]}], events=[])  # a visit without episodes
def test_no_folder_breaks_a_description_or_a_comparison(tmp_path_factory, config, metrics, events):
    folder = tmp_path_factory.mktemp("any")
    (folder / "config.json").write_text(json.dumps(config))
    for log, held in (("metrics", metrics), ("events", events)):
        (folder / f"{log}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in held))
    run = describe(folder)
    follow = Follower(folder, {"unit": run["unit"], "state": run["state"]})
    found = compare({"a": folder, "b": folder})
    json.dumps([run, follow.look(), found], allow_nan=False)
    assert len(run["events"]) == len(events)


def test_a_last_line_that_is_being_written_is_left_for_later(copied):
    with (copied / "metrics.jsonl").open("a") as file:
        file.write('{"round": 13, "step": 13')
    run = describe(copied)
    assert run["lines"] == ROUNDS
    assert run["problems"] == []


@pytest.mark.parametrize("name", ["config.json", "result.json"])
@pytest.mark.parametrize("text", ["", "{", "[]", "\x00", "[" * 100_000])
def test_a_damaged_file_is_a_sentence_and_the_rest_is_shown(copied, name, text):
    (copied / name).write_text(text)
    run = describe(copied)
    (problem,) = run["problems"]
    assert name in problem
    assert len(run["events"]) == len(EVENTS)


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(RunError, match="none of config.json, manifest.json, events.jsonl"):
        describe(tmp_path)
    with pytest.raises(RunError, match="gone was deleted"):
        describe(tmp_path / "gone")


def test_a_run_with_ten_thousand_events_and_lines_is_described_in_bounded_size(tmp_path):
    made = MadeRun(tmp_path / "long").round()
    line = json.loads((tmp_path / "long" / "metrics.jsonl").read_text())
    event = made.net.grow("the metric improved by 0 in 1 epochs, less than 9").to_json()
    made.run.append("metrics", [{**line, "step": 100 * n, "loss": n % 7} for n in range(2, 10_001)])
    made.run.append("events", [{"round": n, "step": 100 * n, **event} for n in range(2, 10_002)])
    made.run.close()
    started = time.process_time()
    run = describe(tmp_path / "long")
    text = json.dumps(run)
    print(f"described in {time.process_time() - started:.2f} s of CPU, {len(text):,} bytes")
    assert len(run["events"]) == 10_000
    assert all(len(one["x"]) <= MOST_POINTS + 2 for one in run["curves"])
    assert len(text) < 8e6
    assert set(curve(run, "loss")["y"]) >= {0, 6}


@given(st.lists(numbers, min_size=1, max_size=300), st.integers(4, 60))
def test_a_thinned_curve_keeps_ends_and_extremes(values, most):
    x, y = thin(range(len(values)), values, most)
    assert len(x) <= most + 4
    assert (x[0], x[-1]) == (0, len(values) - 1)
    assert (y.min(), y.max()) == (min(values), max(values))
    assert (np.diff(x) > 0).all()
    assert y.tolist() == [values[int(n)] for n in x]


def test_visits_of_a_stream_follow_each_other():
    lines = [
        {"visits": [{"regime": "home", "step": 100, "ended": [10, 10], "found": [1, 9]}]},
        {"visits": []},
        {"visits": [{"regime": "<b>", "step": 300, "ended": [0, 0], "found": [0, 0]}, {"regime": "broken"}]},
    ]
    first, second = visits_of(lines)
    assert (first["start"], first["end"], first["success"]) == (0, 100, 0.5)
    assert first["bins"] == ([25, 75], [0.1, 0.9])
    assert (second["start"], second["end"], second["success"], second["bins"]) == (100, 300, None, ([], []))


def test_the_last_checkpoint_shows_the_weights_masks_and_belief_that_were_saved(tmp_path):
    made = MadeRun(tmp_path / "run")
    made.finish()
    held = network(tmp_path / "run", "last")
    assert [(layer["place"], layer["frozen"]) for layer in held["layers"]] == [(0, True), (1, False), (None, False)]
    for layer, of in zip(held["layers"], made.net.layers, strict=False):
        (drawn,), (weight,) = layer["weights"], of.weights
        values = weight.parameter.detach().numpy()
        gone = weight.pruned.numpy() if weight.pruned is not None else np.zeros(values.shape, bool)
        assert layer["density"] == pytest.approx(1 - gone.mean())
        assert layer["belief"] == pytest.approx(float(weight.belief.mean()), abs=1e-6)
        assert np.array_equal(cells(drawn) == 0, gone | (values == 0))
        rebuilt = cells(drawn) / 127 * drawn["scale"]
        assert rebuilt == pytest.approx(np.where(gone, 0, values), abs=drawn["scale"] / 120)


def test_a_snapshot_shows_as_many_layers_as_there_were(made):
    before, after = (network(made, f"0000-{when}") for when in ("before", "after"))
    assert [sum(layer["place"] is not None for layer in held["layers"]) for held in (before, after)] == [1, 2]
    assert [layer["density"] for layer in after["layers"]] == [1, 1, 1]  # zeros of an identity are not pruned
    tensors = load_file(made / "spectra" / "0001-after.safetensors")
    pruned = network(made, "0001-after")["layers"][0]
    assert pruned["density"] == pytest.approx(float((tensors["layers.0.linear.weight"] != 0).float().mean()))


def test_spectra_are_those_of_the_weights(made):
    weights = load_file(made / "spectra" / "0001-before.safetensors")["layers.1.linear.weight"]
    held = network(made, "0001-before")
    (spectrum,) = [one for one in held["spectra"] if one["name"] == "layers.1.linear"]
    eigenvalues = np.linalg.eigvalsh((weights.T @ weights).double().numpy())
    heights, _ = np.histogram(eigenvalues, 30, (0, 1.001 * eigenvalues[-1]), density=True)
    assert spectrum["heights"] == pytest.approx(heights, rel=1e-2)
    assert spectrum["stable_rank"] == pytest.approx(eigenvalues.sum() / eigenvalues[-1], rel=1e-4)
    assert spectrum["law"] is not None
    assert [one["name"] for one in held["spectra"]] == ["layers.0.linear", "layers.1.linear", "head"]


def test_the_predicted_density_of_random_weights_has_the_mass_of_the_bulk(tmp_path):
    net = save_transformer(tmp_path / "checkpoint")
    with torch.no_grad():
        net.model.transformer["h"][0].up.weight.normal_()
    net.save(tmp_path / "checkpoint")
    (one,) = [s for s in network(tmp_path / "checkpoint", "here")["spectra"] if s["name"].endswith("h.0.up")]
    assert np.trapezoid(one["law"]["y"], one["law"]["x"]) == pytest.approx(1 - len(one["spikes"]) / 8, abs=0.1)


def test_a_checkpoint_of_transformer_blocks_is_shown_without_building_the_model(tmp_path):
    save_transformer(tmp_path / "checkpoint")
    run = describe(tmp_path / "checkpoint")
    assert (run["kind"], run["unit"], [event["kind"] for event in run["events"]]) == ("checkpoint", "epoch", ["grown"])
    layers = network(tmp_path / "checkpoint", "here")["layers"]
    assert [layer["place"] for layer in layers] == [None, 0, 1, 2, None]
    assert (layers[0]["name"], layers[-1]["name"]) == ("transformer.wte.weight", "lm_head.weight")
    assert {one["name"]: one["shape"] for one in layers[2]["weights"]} == {
        "attention.in_proj_weight": [24, 8],
        "attention.out_proj.weight": [8, 8],
        "up.weight": [32, 8],
        "down.weight": [8, 32],
    }


def test_a_run_without_logs_has_the_events_of_its_last_checkpoint(copied):
    for log in ("metrics", "events"):
        (copied / f"{log}.jsonl").unlink()
    run = describe(copied)
    assert [event["kind"] for event in run["events"]] == ["grown", "pruned", "frozen"]
    assert (run["unit"], run["curves"], run["problems"]) == ("epoch", [], [])


def test_events_of_a_network_of_ones_own_need_no_run_folder(tmp_path):
    net = save_transformer(tmp_path / "checkpoint")
    net.freeze(0)
    net.end_epoch(1.0)
    net.freeze(1)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "events.jsonl").write_text("".join(json.dumps(e.to_json()) + "\n" for e in net.events))
    run = describe(tmp_path / "mine")
    assert (run["kind"], run["unit"], run["moments"]) == ("events", "epoch", [])
    assert [(event["kind"], event["x"], event["after"]["depth"]) for event in run["events"]] == [
        ("grown", 0, 3), ("frozen", 0, 3), ("frozen", 1, 3),
    ]  # fmt: skip
    assert run["events"][-1]["after"]["frozen"] == [0, 1]


@given(arrays(np.float64, st.tuples(st.integers(1, 9), st.integers(1, 9)), elements=numbers), st.integers(1, 9))
def test_a_cell_is_the_greatest_weight_in_it(matrix, most):
    found = extremes(matrix, most)
    assert found.shape == tuple(min(side, most) for side in matrix.shape)
    assert np.abs(found).max() == np.abs(matrix).max()
    assert set(found.ravel()) <= set(matrix.ravel())
    if most == 9:
        assert np.array_equal(found, matrix)


@pytest.mark.parametrize("moment", ["", "first", "../../etc", "0000-during", "0099-after", "00001-before"])
def test_a_moment_that_is_not_there_is_refused(made, moment):
    with pytest.raises(RunError):
        network(made, moment)


@pytest.mark.parametrize("damage", [b"", b"\xff" * 100, b"\x10\x00\x00\x00\x00\x00\x00\x00{}", b"\xff" * 8])
def test_damaged_weights_are_a_sentence(copied, damage):
    (path,) = (copied / "checkpoints" / "last").glob("*.safetensors")
    for broken, moment in ((path, "last"), (copied / "spectra" / "0000-after.safetensors", "0000-after")):
        broken.write_bytes(damage)
        with pytest.raises(RunError, match="damaged"):
            network(copied, moment)
    path.unlink()
    with pytest.raises(RunError, match="deleted"):
        network(copied, "last")


def test_large_matrices_are_drawn_in_cells(tmp_path):
    net = MadeRun(tmp_path / "run", width=LARGEST + 1).round()
    net.finish()
    held = network(tmp_path / "run", "last")
    assert held["layers"][1]["weights"][0]["cells"] == [MOST_CELLS, MOST_CELLS]
    assert held["spectra_left_out"] == 1  # the second layer; the others are narrow


def test_runs_are_compared_by_variant_with_the_interval_of_their_seeds(tmp_path):
    folders = {}
    for width in (4, 6):
        for seed in (900, 901, 902):
            made = MadeRun(tmp_path / f"w{width}-{seed}", seed, width)
            made.run.append(
                "metrics", [{"round": n, "step": n, "score": n * (seed - 899) + width} for n in range(1, 5)]
            )
            made.run.close()
            folders[f"w{width}-{seed}"] = made.run.folder
    found = compare(folders)
    assert [(one["label"], one["seeds"]) for one in found["variants"]] == [
        ("width 4", [900, 901, 902]), ("width 6", [900, 901, 902]),
    ]  # fmt: skip
    (score,) = [one for one in found["curves"] if one["key"] == "score"]
    band = score["bands"][0]
    interval = stats.t.interval(0.95, 2, loc=12, scale=stats.sem([8, 12, 16]))
    assert (band["x"][-1], band["mean"][-1]) == (4, 12)
    assert (band["low"][-1], band["high"][-1]) == pytest.approx(interval)


def test_a_comparison_leaves_out_what_it_cannot_read(copied, made):
    (copied / "config.json").write_text("{")
    found = compare({"good": made, "bad": copied})
    assert [one["runs"] for one in found["variants"]] == [["good"]]
    assert "bad is left out" in found["problems"][0]
    with pytest.raises(RunError, match="from 1 to 64"):
        compare({})


def test_the_server_answers_with_runs_networks_and_comparisons(made, tmp_path):
    save_transformer(tmp_path / "mine")
    shutil.copytree(made, tmp_path / "<script>")
    client = TestClient(make_app([tmp_path], token="t"), "http://127.0.0.1")
    client.get("/?token=t")
    name = f"{tmp_path.name}/<script>"
    assert {row["run"] for row in client.get("/api/runs").json()} == {name, f"{tmp_path.name}/mine"}
    assert client.get(f"/api/run/{name}").json()["name"] == "<script>"
    assert len(client.get(f"/api/network/{name}", params={"moment": "last"}).json()["layers"]) == 3
    assert client.get(f"/api/network/{tmp_path.name}/mine", params={"moment": "here"}).status_code == 200
    assert client.get("/api/compare", params={"run": name}).json()["variants"][0]["runs"] == [name]
    alone = TestClient(make_app([tmp_path / "mine"], token="t"), "http://127.0.0.1")
    assert [row["run"] for row in alone.get("/api/runs?token=t").json()] == ["mine"]
    assert alone.get("/api/run/mine").json()["kind"] == "checkpoint"
    shutil.rmtree(tmp_path / "<script>")
    for path in (f"/api/run/{name}", f"/api/network/{name}", f"/api/compare?run={name}", "/api/compare"):
        answer = client.get(path)
        assert (answer.status_code, list(answer.json())) == (404, ["error"])
