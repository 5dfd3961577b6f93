import json
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import OPTIMIZERS, assert_consistent, assert_same, data, small, snapshot, train
from torch import nn

import gpf
from gpf.network import CheckpointError
from gpf.network.checkpoints.saving import MANIFEST

RULES = gpf.Rules(
    grow_patience=2, max_depth=4, prune_patience=1, saliency="obd", saliency_threshold=1e-4, belief_threshold=2.0,
    freeze_patience=5, freeze_delta=0.05, grow_undoable=True, activation_threshold=0.1,
)  # fmt: skip


def build():
    return gpf.MLP(6, 8, 3)


def epochs(net, x, y, count):
    """Training with randomness of all three kinds in it; returns the losses."""
    losses = []
    for _ in range(count):
        noise = torch.randn_like(x) + float(np.random.randn()) + random.random()  # noqa: NPY002
        losses.append(train(net.model, net.optimizer, x + 0.01 * noise, y, steps=3))
        net.end_epoch(1.0)
    return losses


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_on_after_a_load_equals_unbroken_training(name, tmp_path):
    for stop in (1, 4, 9):
        torch.manual_seed(1)
        net, x, y = small(name, rules=RULES)
        epochs(net, x, y, stop)
        net.save(tmp_path / "run")
        losses = epochs(net, x, y, 8)
        again = gpf.load(tmp_path / "run", build)
        assert type(again.optimizer) is type(net.optimizer)
        assert epochs(again, x, y, 8) == losses
        assert_same(snapshot(again), snapshot(net))
        assert again.events == net.events
        assert again.epoch == net.epoch
        assert_consistent(again)
        if net.before_growth is not None:
            net.undo()
            again.undo()
            assert_same(snapshot(again), snapshot(net))


def test_settings_of_the_optimizer_survive(tmp_path):
    model = build()
    groups = [{"params": [model.head.weight, model.head.bias], "lr": 0.5}, {"params": model.layers.parameters()}]
    optimizer = torch.optim.Adam(groups, lr=0.1, betas=(0.8, 0.9), foreach=True)
    net = gpf.attach(model, optimizer)
    net.grow()
    net.freeze(0)
    net.save(tmp_path)
    loaded = gpf.load(tmp_path, build).optimizer
    for mine, theirs in zip(loaded.param_groups, optimizer.param_groups, strict=True):
        assert {k: v for k, v in mine.items() if k != "params"} == {k: v for k, v in theirs.items() if k != "params"}


def test_tied_weights_are_saved_once_and_stay_tied(tmp_path):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(5, 8)
            self.layers = nn.ModuleList([self.make_block(0)])
            self.head = nn.Linear(8, 5, bias=False)
            self.head.weight = self.embedding.weight

        def make_block(self, depth):
            return nn.Sequential(nn.Linear(8, 8), nn.ReLU())

        def forward(self, x):
            x = self.embedding(x)
            for layer in self.layers:
                x = layer(x)
            return self.head(x)

    model = Tied()
    net = gpf.attach(model, torch.optim.Adam(model.parameters()))
    net.grow()
    net.save(tmp_path)
    loaded = gpf.load(tmp_path, Tied)
    x = torch.arange(5)
    assert torch.equal(loaded.model(x), model(x))
    assert loaded.model.head.weight is loaded.model.embedding.weight


def test_an_optimizer_of_ones_own_is_made_by_the_caller(tmp_path):
    class Mine(torch.optim.SGD):
        pass

    model = build()
    gpf.attach(model, Mine(model.parameters(), lr=0.1)).save(tmp_path)
    with pytest.raises(
        CheckpointError, match="^checkpoint .*: its optimizer, Mine, is not in torch.optim; pass optimizer"
    ):
        gpf.load(tmp_path, build)
    assert isinstance(gpf.load(tmp_path, build, optimizer=lambda groups: Mine(groups)).optimizer, Mine)


def test_an_optimizer_that_is_only_named_like_torchs_is_not_taken_for_it(tmp_path):
    class Adam(torch.optim.SGD):
        pass

    model = build()
    gpf.attach(model, Adam(model.parameters(), lr=0.1)).save(tmp_path)
    with pytest.raises(CheckpointError, match="its optimizer, Adam, is not in torch.optim"):
        gpf.load(tmp_path, build)


def test_errors_of_the_callers_own_functions_are_the_callers(saved):
    def broken():
        return {}["hidden_size"]

    with pytest.raises(KeyError, match="hidden_size"):
        gpf.load(saved, broken)


def test_a_checkpoint_without_its_optimizer_is_for_use(tmp_path):
    net, x, y = small(rules=RULES)
    epochs(net, x, y, 6)
    net.save(tmp_path / "whole")
    net.save(tmp_path / "bare", optimizer=False)
    sizes = [sum(path.stat().st_size for path in (tmp_path / name).glob("*.safetensors")) for name in ("whole", "bare")]
    assert sizes[1] < sizes[0] / 2
    bare = gpf.load(tmp_path / "bare", build)
    assert bare.optimizer is None
    assert torch.equal(bare.model(x), net.model(x))
    assert bare.shape() == net.shape()
    torch.testing.assert_close(bare.compact()(x), net.model(x), rtol=1e-4, atol=1e-5)
    for change_it in (lambda: bare.end_epoch(1.0), bare.grow, bare.prune, lambda: bare.freeze(0), bare.undo):
        with pytest.raises(ValueError, match="^this checkpoint was saved without its optimizer"):
            change_it()


def test_a_frozen_layer_without_parameters_can_thaw_after_a_load(tmp_path):
    def make():
        return nn.Sequential(nn.Linear(2, 2), nn.ReLU())

    model = make()
    net = gpf.attach(model, torch.optim.Adam(model.parameters()), stack="", block=lambda depth: nn.ReLU())
    net.freeze(1)
    net.save(tmp_path)
    again = gpf.load(tmp_path, make)
    again.thaw(1)
    assert again.frozen == ()


def test_random_state_is_left_alone_where_asked_to(tmp_path):
    net, *_ = small()
    net.save(tmp_path)
    torch.manual_seed(99)
    expected = torch.initial_seed()
    gpf.load(tmp_path, build, restore_random=False)
    assert torch.initial_seed() == expected


def test_nothing_is_pickled(tmp_path):
    net, x, y = small(rules=RULES)
    epochs(net, x, y, 6)
    net.save(tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names[0] == MANIFEST
    assert len(names) == 2
    assert names[1].endswith(".safetensors")
    json.loads((tmp_path / MANIFEST).read_text())


@pytest.fixture
def saved(tmp_path):
    net, x, y = small(rules=RULES)
    epochs(net, x, y, 2)
    net.save(tmp_path / "run")
    return tmp_path / "run"


def test_a_failed_save_leaves_the_old_checkpoint_alone(saved, monkeypatch):
    net = gpf.load(saved, build)
    before = {path.name: path.read_bytes() for path in saved.iterdir()}
    x, y = data()
    epochs(net, x, y, 1)

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        net.save(saved)
    assert {path.name: path.read_bytes() for path in saved.iterdir()} == before


KILLED_WHILE_SAVING = """
import os, random, signal, sys, time
import gpf, torch

torch.set_num_threads(1)
folder, rng = sys.argv[1], random.Random(0)

def build():
    return gpf.MLP(6, 256, 3)

model = build()
net = gpf.attach(model, torch.optim.Adam(model.parameters()))
net.save(folder)
epoch = 0
for _ in range(12):
    child = os.fork()
    if child == 0:
        while True:
            net.epoch += 1
            net.save(folder)
    time.sleep(rng.uniform(0.005, 0.15))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    again = gpf.load(folder, build)
    assert again.epoch >= epoch and again.depth == 1
    net.epoch = epoch = again.epoch
print(epoch)
"""


def test_a_process_killed_while_saving_leaves_a_whole_checkpoint(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", KILLED_WHILE_SAVING, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0  # some were saved before the process was killed
    net = gpf.load(tmp_path, lambda: gpf.MLP(6, 256, 3))
    net.save(tmp_path)
    assert len(list(tmp_path.iterdir())) == 2  # leftovers of the killed ones are gone


def test_an_optimizer_with_parameters_from_elsewhere_is_not_saved(tmp_path):
    model, other = build(), nn.Linear(2, 2)
    net = gpf.attach(model, torch.optim.Adam([*model.parameters(), *other.parameters()]))
    with pytest.raises(ValueError, match="^optimizer must hold only the model's parameters to be saved, got 2 others$"):
        net.save(tmp_path)


def test_what_else_belongs_to_a_training_is_saved_with_it(tmp_path):
    net, *_ = small()
    net.save(tmp_path, extra={"places": torch.arange(5), "step": 7, "name": "a"})
    again = gpf.load(tmp_path, build=lambda: small()[0].detach())
    assert torch.equal(again.extra.pop("places"), torch.arange(5))
    assert again.extra == {"step": 7, "name": "a"}
    assert net.extra == {}


@pytest.mark.parametrize("after", [False, True])
def test_an_interrupt_in_the_middle_of_saving_leaves_a_whole_checkpoint(after, tmp_path, monkeypatch):
    net, *_ = small()
    net.save(tmp_path)
    replace = Path.replace

    def interrupted(self, target):
        if after:
            replace(self, target)
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupted)
    net.end_epoch(1.0)
    with pytest.raises(KeyboardInterrupt):
        net.save(tmp_path)
    again = gpf.load(tmp_path, build=lambda: small()[0].detach())
    assert again.epoch == (1 if after else 0)
    assert len(list(tmp_path.glob("*.safetensors"))) == (2 if after else 1)
