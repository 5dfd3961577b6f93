"""Damaged checkpoints: one sentence that says what is wrong, and nothing half restored."""

import copy
import hashlib
import json
import random
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import small, train
from hypothesis import given, settings
from hypothesis import strategies as st

import gpf
from gpf.network import CheckpointError
from gpf.network.checkpoints.saving import MANIFEST

RULES = gpf.Rules(
    grow_patience=2, max_depth=3, prune_patience=1, saliency_threshold=0.5, belief_threshold=2.0, freeze_patience=None,
    grow_undoable=True, activation_threshold=0.1,
)  # fmt: skip


def build():
    return gpf.MLP(6, 4, 3)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A checkpoint with a bit of everything: grown, pruned, frozen and undoable, with an extra."""
    torch.manual_seed(0)
    net, x, y = small(width=4, rules=RULES)
    for _ in range(5):
        train(net.model, net.optimizer, x, y, steps=1)
        net.end_epoch(1.0)
    net.freeze(0)
    assert net.before_growth is not None
    assert {event.kind for event in net.events} == {"grown", "pruned", "frozen"}
    folder = tmp_path_factory.mktemp("whole")
    net.save(folder, extra={"step": 7})
    return folder


@pytest.fixture
def saved(whole, tmp_path):
    return Path(shutil.copytree(whole, tmp_path / "run"))


def random_states():
    numpy_state = np.random.get_state()  # noqa: NPY002
    return torch.get_rng_state().tolist(), numpy_state[1].tolist(), numpy_state[2:], random.getstate()


def message_of(folder, make=build):
    """What is wrong with a checkpoint, in one line; loading it has not touched anything."""
    before = random_states()
    with pytest.raises(CheckpointError) as error:
        gpf.load(folder, make)
    assert random_states() == before
    text = str(error.value)
    assert text.startswith(f"checkpoint {folder}: ")
    assert "\n" not in text
    assert len(text) < 400
    return text.removeprefix(f"checkpoint {folder}: ")


def change(folder, *path_and_value):
    """Set an entry of the manifest, given its path."""
    *path, last, value = path_and_value
    manifest = json.loads((folder / MANIFEST).read_text())
    node = manifest
    for name in path:
        node = node[name]
    node[last] = value
    (folder / MANIFEST).write_text(json.dumps(manifest))


def drop(folder, *path):
    manifest = json.loads((folder / MANIFEST).read_text())
    node = manifest
    for name in path[:-1]:
        node = node[name]
    del node[path[-1]]
    (folder / MANIFEST).write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (("format", "zip"), "its manifest must have the format 'gpf-checkpoint', that of a gpf checkpoint"),
        (("version", 99), "version must be 3, got 99"),
        (("version", True), "version must be 3, got True"),
        (("tensors", "x"), "tensors must be an object, got 'x'"),
        (("tensors", "file", 5), "tensors.file must be a plain file name in this folder, got 5"),
        (("tensors", "bytes", -1), "tensors.bytes must be a whole number of at least 0, got -1"),
        (("tensors", "sha256", None), "tensors.sha256 must be text, got None"),
        (("epoch", -1), "epoch must be a whole number of at least 0, got -1"),
        (("epoch", 2.0), "epoch must be a whole number of at least 0, got 2.0"),
        (("epoch", True), "epoch must be a whole number of at least 0, got True"),
        (("stack", 3), "stack must be text, got 3"),
        (
            ("stack", "elsewhere"),
            "it does not fit the model: stack must be a path to the blocks of MLP, got 'elsewhere'",
        ),
        (("layers", 3), "layers must be a list of at least one, got 3"),
        (("layers", []), "layers must be a list of at least one, got []"),
        (("layers", 1, "x"), "layers[1] must be an object, got 'x'"),
        (("layers", 0, "frozen", 1), "layers[0].frozen must be true or false, got 1"),
        (("layers", 0, "colour", 1), "layers[0] has an unknown entry 'colour'"),
        (("plateau", None), "plateau must be an object, got None"),
        (("plateau", "window", ["x"]), "plateau.window[0] must be a finite number, got 'x'"),
        (("plateau", "before", float("inf")), "plateau.before must be a finite number, got inf"),
        (("plateau", "peak", 10**400), "plateau.peak must be a finite number, got 1000"),
        (("prunes_due", [-1]), "prunes_due[0] must be a whole number of at least 0, got -1"),
        (("trainable", ["x"]), "trainable must name parameters that the model has there, got 'x'"),
        (("events", {}), "events must be a list, got {}"),
        (
            ("events", 0, "kind", "shrunk"),
            "events[0].kind must be one of grown, pruned, regrown, removed, frozen, thawed, undone, got",
        ),
        (
            ("events", 0, "kind", []),
            "events[0].kind must be one of grown, pruned, regrown, removed, frozen, thawed, undone, got []",
        ),
        (("events", 0, "after", "frozen", "x"), "events[0].after.frozen must be a list, got 'x'"),
        (("rules", "unknown", 1), "rules has an unknown entry 'unknown'"),
        (("rules", "mode", "best"), "rules: mode must be one of min, max, got 'best'"),
        (("rules", "warmup", {}), "rules.warmup must be a finite number, text, true, false or null, got {}"),
        (
            ("rules", "grow_threshold", 10**400),
            "rules.grow_threshold must be a finite number, text, true, false or null, got 1",
        ),
        (("random", {}), "random.torch is missing"),
        (("random", "torch", 5), "random.torch must be text, got 5"),
        (("random", "torch", "AAAA"), "random must be a state of torch, NumPy and Python (Expected a CPUGenerator"),
        (("random", "torch", "?"), "random must be a state of torch, NumPy and Python ("),
        (("random", "cuda", "x"), "random.cuda must be a list, got 'x'"),
        (("random", "numpy", 0, "PCG64"), "random.numpy[0] must be 'MT19937', got 'PCG64'"),
        (("random", "numpy", 1, [1]), "random.numpy[1] must be a list of 624 whole numbers of 32 bits, got [1]"),
        (("random", "numpy", 2, 625), "random.numpy[2] must be a place from 0 to 624, got 625"),
        (("random", "python", [3]), "random.python must be a list of 3, got [3]"),
        (("random", "python", 2, "x"), "random.python[2] must be a finite number, got 'x'"),
        (("optimizer", {}), "optimizer.members is missing"),
        (("optimizer", None), "optimizer must be described, for there are tensors of it, got None"),
        (
            ("optimizer", "each", 0, "class", "lr_scheduler"),
            "its optimizer, lr_scheduler, is not in torch.optim; pass optimizer=",
        ),
        (
            ("optimizer", "each", 0, "groups", 0, "lr", "x"),
            "lr of Adam's group 0 must be of the kind of torch's default, 0.001, got 'x'",
        ),
        (
            ("optimizer", "each", 0, "groups", 0, "betas", [0.9]),
            "betas of Adam's group 0 must be of the kind of torch's default, ",
        ),
        (
            ("optimizer", "each", 0, "groups", 0, "lr", {"tensor": {}}),
            "the settings of Adam must be those of torch's (RuntimeError: ",
        ),
        (("optimizer", "each", 0, "groups", []), "optimizer.members must be a list for each of its 0 groups"),
        (("optimizer", "members", 0, 0, "x"), "optimizer.members must name parameters that the model has there, got"),
        (("optimizer", "members", [[]]), "optimizer.stored must name members of its groups"),
        (("optimizer", "stored", "head.bias", 0), "optimizer.stored must name parameters that the model has there, "),
        (("optimizer", "stored", "layers.0.linear.bias", 1), "optimizer.members and optimizer.stored must be of its 1"),
        (("optimizer", "scalars", {"x": {}}), "optimizer.scalars must name parameters that the model has there, got"),
        (("undo", "layers", 0, "still", None), "undo.layers[0].still must be a whole number of at least 0, got None"),
        (("undo", "optimizer", "members", [[], []]), "optimizer.members and optimizer.stored must be of its 1 groups"),
        (("undo", "trainable", ["layers.2.linear.bias"]), "trainable must name parameters that the model has there, "),
        (("extra", []), "extra must be an object, got []"),
        (("schedulers", [1]), "schedulers[0] must be an object, got 1"),
    ],
    ids=lambda value: ".".join(map(str, value[:-1])) if isinstance(value, tuple) else "",
)
def test_a_wrong_entry_is_named(saved, entry, message):
    change(saved, *entry)
    assert message_of(saved).startswith(message)


@pytest.mark.parametrize(
    "path",
    [
        ("tensors",), ("tensors", "file"), ("layers",), ("layers", 0, "still"), ("plateau", "hold"),
        ("rules", "warmup"), ("epoch",), ("events",), ("events", 0, "reason"), ("events", 0, "before", "depth"),
        ("random",), ("random", "python"), ("optimizer",), ("optimizer", "stored"), ("optimizer", "each", 0, "named"),
        ("trainable",), ("prunes_due",), ("stack",), ("extra",), ("undo", "plateau"), ("undo", "optimizer"),
    ],
    ids=lambda path: ".".join(map(str, path)),
)  # fmt: skip
def test_a_missing_entry_is_named(saved, path):
    drop(saved, *path)
    name = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)[1:]
    assert message_of(saved) == f"{name} is missing"


def test_what_can_be_undone_is_there_whole_or_not_at_all(saved):
    drop(saved, "undo")
    assert message_of(saved) == "undo is missing in the manifest"


def test_layers_that_are_gone_are_missed(saved):
    drop(saved, "layers", 2)
    assert message_of(saved).startswith("it does not fit the model: layers.2.linear.")


def test_a_parameter_is_in_the_optimizer_once(saved):
    manifest = json.loads((saved / MANIFEST).read_text())
    [members] = manifest["optimizer"]["members"]
    change(saved, "optimizer", "members", [[*members, members[0]]])
    assert message_of(saved) == "optimizer.members must name each parameter once"


@pytest.mark.parametrize("kind", ["absolute", "..", "below", "parent", "nothing", "null", "link name"])
def test_tensors_outside_of_the_folder_are_not_read(saved, tmp_path, kind):
    """Though they are what the manifest says, to the last bit."""
    name = json.loads((saved / MANIFEST).read_text())["tensors"]["file"]
    (saved / "below").mkdir()
    for place in (tmp_path, saved / "below"):
        shutil.copy(saved / name, place / name)
    wrong = {
        "absolute": str(tmp_path / name), "..": f"../{name}", "below": f"below/{name}", "parent": "..", "nothing": "",
        "null": f"{name}\0", "link name": f"./{name}",
    }[kind]  # fmt: skip
    change(saved, "tensors", "file", wrong)
    assert message_of(saved).startswith("tensors.file must be a plain file name in this folder, got ")


def tensors_of(folder):
    return next(folder.glob("*.safetensors"))


def replace_by_folder(path):
    path.unlink()
    path.mkdir()


def flip(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / MANIFEST).unlink(), "manifest.json is missing; save() writes it"),
        (lambda f: replace_by_folder(f / MANIFEST), "manifest.json cannot be read (Is a directory)"),
        (lambda f: (f / MANIFEST).write_text("{"), "manifest.json must be JSON in UTF-8 (Expecting property name"),
        (lambda f: (f / MANIFEST).write_text(""), "manifest.json must be JSON in UTF-8 (Expecting value"),
        (lambda f: (f / MANIFEST).write_bytes(b"\xff\xfe\x00"), "manifest.json must be JSON in UTF-8 ('utf-8' codec"),
        (lambda f: (f / MANIFEST).write_text("[" * 10**6), "manifest.json must be JSON in UTF-8 (maximum recursion"),
        (lambda f: (f / MANIFEST).write_text('{"a": ' + "9" * 9999 + "}"), "manifest.json must be JSON in UTF-8 ("),
        (lambda f: (f / MANIFEST).write_text('{"a": 1}'), "its manifest must have the format 'gpf-checkpoint'"),
        (lambda f: (f / MANIFEST).write_text("[1]"), "its manifest must have the format 'gpf-checkpoint'"),
        (lambda f: tensors_of(f).unlink(), "tensors-"),
        (lambda f: replace_by_folder(tensors_of(f)), "tensors-"),
        (lambda f: tensors_of(f).write_bytes(tensors_of(f).read_bytes()[:-100]), "tensors-"),
        (lambda f: tensors_of(f).write_bytes(b""), "tensors-"),
        (lambda f: flip(tensors_of(f)), "tensors-"),
    ],
)
def test_damaged_files_get_a_clear_error(saved, damage, message):
    damage(saved)
    text = message_of(saved)
    assert text.startswith(message)
    if message == "tensors-":
        assert "is damaged (" in text or "cannot be read (" in text


def test_tensors_of_another_format_are_refused(saved):
    tensors_of(saved).write_bytes(b"pickle")
    change(saved, "tensors", "bytes", 6)
    change(saved, "tensors", "sha256", hashlib.sha256(b"pickle").hexdigest())
    assert "must be in the safetensors format (" in message_of(saved)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: gpf.MLP(6, 9, 3), "it does not fit the model: layers.0.linear.weight is 4x6 of float32 there and 9x6"),
        (lambda: build().double(), "it does not fit the model: layers.0.linear.weight is 4x6 of float32 there and 4x6"),
        (lambda: gpf.MLP(6, 4, 3, depth=7), "build() must make at most 3 layers, as many as were saved, got 7"),
    ],
)
def test_another_model_gets_a_clear_error(saved, wrong, message):
    assert message_of(saved, wrong).startswith(message)


def test_errors_of_the_callers_own_functions_are_the_callers_and_leave_the_random_state_alone(saved):
    def broken():
        torch.rand(3)
        return {}["hidden_size"]

    before = random_states()
    with pytest.raises(KeyError, match="hidden_size"):
        gpf.load(saved, broken)
    assert random_states() == before


NESTED = [[[[[[[[]]]]]]]]
REPLACEMENTS = (None, -1, 0, 2.5, "x", "", [], {}, True, float("inf"), float("nan"), 10**400, NESTED, "delete")


@st.composite
def damaged_places(draw, manifest):
    """A path to some entry of the manifest; deep ones as likely as shallow ones."""
    path, node = [], manifest
    while isinstance(node, dict | list) and node and (not path or draw(st.booleans())):
        place = draw(st.sampled_from(sorted(node)) if isinstance(node, dict) else st.integers(0, len(node) - 1))
        path.append(place)
        node = node[place]
    return path


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_any_damage_to_the_manifest_is_seen_or_harmless(whole, data):
    original = json.loads((whole / MANIFEST).read_text())
    manifest = copy.deepcopy(original)
    for _ in range(data.draw(st.integers(1, 2))):
        *path, last = data.draw(damaged_places(manifest))
        node = manifest
        for name in path:
            node = node[name]
        replacement = data.draw(st.sampled_from(REPLACEMENTS))
        if replacement == "delete":
            del node[last]
        else:
            node[last] = copy.deepcopy(replacement)
        if not manifest:
            break
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(tensors_of(whole), folder)
        (Path(folder) / MANIFEST).write_text(json.dumps(manifest))
        assert seen_or_harmless(folder)


def seen_or_harmless(folder):
    before = random_states()
    try:
        net = gpf.load(folder, build)
    except CheckpointError as error:
        text = str(error)
        return text.startswith(f"checkpoint {folder}: ") and "\n" not in text and random_states() == before
    net.end_epoch(1.0)
    net.undo()
    return net.depth == 2 and bool(torch.isfinite(net.model(torch.ones(1, 6))).all())
