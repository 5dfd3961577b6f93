"""`gpf spectra`: the snapshots of a run, analysed and drawn."""

import json
import shutil

import numpy as np
import pytest
from PIL import Image

from gpf.runs.folder import read_log
from gpf.tasks.spectra import analyse_run, draw_run, drifts, telling

pytestmark = pytest.mark.usefixtures("one_torch_thread")


@pytest.fixture(scope="module")
def run(plume_run, tmp_path_factory):
    """A run of its own, for figures are written to it."""
    return shutil.copytree(plume_run, tmp_path_factory.mktemp("spectra") / "run")


@pytest.fixture(scope="module")
def moments(run, few_episodes_in_module):
    """Of that run, all."""
    return analyse_run(run)


def test_moments_follow_the_events_of_the_run(run, moments):
    events = read_log(run, "events")
    kinds = [event["kind"] for event in events]
    assert {"grown", "pruned", "frozen"} <= set(kinds)
    happened = [m for m in moments if any(f" {kind} " in m.label for kind in ("grown", "pruned", "frozen"))]
    assert [m.label.split()[2] for m in happened] == kinds
    assert moments[-1].label == "end"
    grown = happened[kinds.index("grown")]
    assert [layer.name for layer in grown.inspection.layers] == ["layers.0.linear", "layers.1.linear", "head"]
    moved = dict(zip([m.label for m in moments], drifts(moments), strict=True))
    assert moved[grown.label]["layers.0.linear"] == 0.0  # growing changes no weight that was there
    pruned = happened[kinds.index("pruned")]
    assert moved[pruned.label]["layers.0.linear"] > 0.0
    assert len(grown.folds) == 2


def test_a_few_moments_are_the_ends_and_the_growths_between():
    labels = [
        "epoch 1, before event 1", "epoch 1, grown 1", "epoch 2, pruned 0", "epoch 3, grown 2",
        "epoch 4, before event 4", "epoch 4, frozen 0", "end",
    ]  # fmt: skip
    assert telling(labels, 4) == [0, 1, 3, 6]
    assert telling(labels, 3) == [0, 3, 6]
    assert telling(labels, 6) == [0, 1, 2, 3, 5, 6]
    assert telling(["end"], 4) == [0]


def test_fewer_moments_have_the_same_spectra(run, moments):
    few = analyse_run(run, 3)
    assert len(few) == 3
    whole = {moment.label: moment for moment in moments}
    for moment in few:
        for layer, same in zip(moment.inspection.layers, whole[moment.label].inspection.layers, strict=True):
            assert layer.weights.spectral_norm == same.weights.spectral_norm
    assert [moment.inspection.layers[0].gram is None for moment in few] == [False, True, False]
    assert few[-1].inspection.layers[0].gram.kolmogorov == moments[-1].inspection.layers[0].gram.kolmogorov


def test_figures_and_numbers_are_written(run, moments):
    paths = draw_run(run, moments)
    assert [path.name for path in paths] == [
        "spectra-weights.png", "spectra-activations.png", "plasticity.png", "spectra.json",
    ]  # fmt: skip
    for path in paths[:3]:
        with Image.open(path) as image:
            assert np.asarray(image.convert("L")).std() > 5  # something is drawn
    written = json.loads(paths[3].read_text())
    assert written[-1]["layers"][0]["spectral_norm"] > 0


def test_a_run_records_plasticity_at_every_validation(run):
    lines = read_log(run, "metrics")
    validated = [line for line in lines if line["validation"] is not None]
    assert validated
    for line in validated:
        assert [layer["name"] for layer in line["plasticity"]][-1] == "head"
        assert all(0 <= layer["dead"] <= layer["dormant"] <= 1 for layer in line["plasticity"])


def test_the_command_prints_a_table_and_json(run, moments, monkeypatch, gpf):
    monkeypatch.setattr("gpf.tasks.spectra.analyse_run", lambda folder, tell: moments)  # once more would take long
    table = gpf("spectra", run)
    assert "layers.1.linear" in table
    assert "linear regions" in table
    shown = json.loads(gpf("spectra", run, "--json").splitlines()[-1])
    assert [moment["label"] for moment in shown["moments"]] == [moment.label for moment in moments]
    assert all(f"{moment.label}\n" in table for moment in moments)
