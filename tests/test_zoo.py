"""Navigators that come with gpf find sources as well as their cards say, and work wherever runs do."""

import json
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from gpf.navigation.agents import load_navigator
from gpf.zoo import NAMES, run_folder

CARRIED = ("model/", "layer/", "extra/average")


@pytest.mark.parametrize("name", NAMES)
def test_it_finds_sources_as_its_card_says(name, one_torch_thread):
    folder = run_folder(f"zoo:{name}")
    navigator = load_navigator(f"zoo:{name}")
    results = json.loads((folder / "results.json").read_text())
    success = results[navigator.config.scenario]["success"]
    assert success > 0.95
    assert abs(navigator.evaluate(100, threads=1).success.mean() - success) < 0.06
    card = (folder / "CARD.md").read_text()
    for world, numbers in results.items():
        assert f"| `{world}` | {numbers['success']:.1%} [{numbers['low']:.1%}, {numbers['high']:.1%}] |" in card
    assert f"{navigator.net.count_parameters():,} parameters" in card


@pytest.mark.parametrize("name", NAMES)
def test_it_carries_what_acting_needs_and_nothing_of_its_training(name):
    folder = run_folder(f"zoo:{name}")
    (file,) = folder.rglob("*.safetensors")
    assert all(tensor.startswith(CARRIED) for tensor in safetensors.numpy.load_file(file))
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) < 200_000
    assert {path.name for path in folder.iterdir()} == {
        "CARD.md", "checkpoints", "config.json", "result.json", "results.json"
    }  # fmt: skip
    manifest = json.loads((folder / "checkpoints" / "last" / "manifest.json").read_text())
    assert "progress" not in manifest["extra"]


def test_a_navigator_of_the_zoo_acts():
    navigator = load_navigator("zoo:reference")
    assert navigator.act(np.zeros((3, 8), np.float32)).shape == (3,)


def test_folders_are_left_as_they_are():
    assert run_folder("runs/plume-1") == Path("runs/plume-1")
    assert run_folder("zoo") == Path("zoo")


def test_it_is_evaluated_by_its_name(gpf, tmp_path):
    told = json.loads(gpf("evaluate", "zoo:reference", "--episodes", "20", "--json").splitlines()[-1])
    assert (told["policy"], told["scenario"], told["episodes"]) == ("zoo:reference", "reference", 20)
    assert (tmp_path / told["figure"]).name == "zoo-reference-last-sampled-reference.png"


def test_it_is_exported_by_its_name(gpf, tmp_path):
    gpf("export", "zoo:reference", "--episodes", "1")
    assert {"gpf_policy.c", "gpf_policy.h"} <= {path.name for path in (tmp_path / "export/reference/c").iterdir()}


def test_its_network_is_fine_tuned_in_another_world(gpf, tmp_path, few_episodes):
    gpf("train", "--from", "zoo:reference", "--scenario", "paper", "--steps", "8192", "--lanes", "16",
        "--evaluate", "0", "--validation-episodes", "5", "--no-report")  # fmt: skip
    config = json.loads((tmp_path / "runs/plume-1/config.json").read_text())
    assert (config["from"], config["config"]["scenario"]) == ("zoo:reference", "paper")
    tuned, source = load_navigator(tmp_path / "runs/plume-1").net, load_navigator("zoo:reference").net
    assert tuned.depth == source.depth
    assert tuned.density <= source.density


def test_misspelled_names_are_refused_with_what_was_meant(mistake):
    said = mistake("evaluate", "zoo:refrence")
    assert "did you mean 'zoo:reference'? Accepted: zoo:reference, zoo:turbulent" in said
    assert "zoo:reference" in mistake("train", "--from", "zoo:nothing")
    assert "zoo:reference" in mistake("export", "zoo:nothing")
    with pytest.raises(ValueError, match="unknown navigator of the zoo 'zoo:nothing'"):
        load_navigator("zoo:nothing")
