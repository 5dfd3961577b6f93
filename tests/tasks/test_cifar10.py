"""CIFAR-10: what is learnt is what a plain loop would learn."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from gpf import data
from gpf.network import MLP, batch_size
from gpf.runs.folder import Outcome
from gpf.tasks import cifar10
from gpf.tasks.cifar10 import TASK, UNITS

pytestmark = pytest.mark.usefixtures("one_torch_thread", "loaded_data")


def test_the_baseline_is_a_plain_training_loop(tmp_path):
    config = cifar10.Config(baseline=True, layers=2, width=16, epochs=2, images=500, seed=3)
    training = TASK.training(TASK.create(tmp_path / "run", config), config, None)
    lines = [training.round(), training.round()]

    (images, classes), (held_out, theirs) = data.cifar10()
    images, classes = images[:500], torch.from_numpy(classes[:500])
    planes = images.reshape(500, 3, 1024).astype(np.float64)
    mean, deviation = planes.mean(axis=(0, 2)), planes.std(axis=(0, 2), ddof=1)

    def normalised(some):
        scaled = (some.reshape(-1, 3, 1024) - mean[:, None]) / deviation[:, None]
        return torch.from_numpy(scaled.reshape(-1, 3072)).float()

    torch.manual_seed(3)
    model = MLP(3072, 16, 10, depth=2)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    loss_before = float(np.log(10))
    for epoch, line in enumerate(lines):
        order = np.random.default_rng((3, epoch)).permutation(500)
        size = round(128 * np.exp(-0.5 * loss_before))
        assert line["batch"] == size
        total = 0.0
        for start in range(0, 500, size):
            batch = order[start : start + size]
            loss = functional.cross_entropy(model(normalised(images[batch])), classes[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch)
        loss_before = total / 500
        assert line["loss"] == pytest.approx(loss_before, rel=1e-4)
    with torch.no_grad():
        logits = model(normalised(held_out[5000:]))
    wanted = torch.from_numpy(theirs[5000:])
    assert lines[-1]["test"]["loss"] == pytest.approx(functional.cross_entropy(logits, wanted).item(), rel=1e-4)
    assert lines[-1]["test"]["accuracy"] == pytest.approx((logits.argmax(1) == wanted).float().mean().item(), abs=1e-3)


def test_what_is_decided_on_is_not_what_is_reported_nor_learnt():
    learnt, validation, test = cifar10.three_parts(50_000)
    assert [len(part[0]) for part in (learnt, validation, test)] == [50_000, 5_000, 5_000]
    together = np.concatenate([validation[0], test[0]])
    assert (together == data.cifar10()[1][0]).all()


def test_batches_get_larger_as_the_loss_falls():
    assert [batch_size(128, loss, 0.5) for loss in (2.3, 1.0, 0.0)] == [41, 78, 128]


def test_the_paper_s_values_are_the_defaults():
    config = cifar10.Config()
    rules = config.network_rules()
    assert (config.layers, config.width, config.batch, config.learning_rate, config.epochs) == (4, 512, 128, 1e-4, 30)
    assert (rules.warmup, rules.grow_patience, rules.prune_patience, rules.freeze_patience) == (7, 5, 2, 7)
    model = cifar10.make_model(cifar10.Config(baseline=True))
    assert [layer.linear.in_features for layer in model.layers] == [3072, 512, 512, 512]


def test_rules_that_prune_whole_units_leave_what_can_be_made_compact(tmp_path):
    changes = {
        "warmup": "0", "grow_patience": "1", "grow_threshold": "100", "prune_patience": "1",
        "activation_threshold": "0.7",
    }  # fmt: skip
    config = cifar10.Config(width=16, layers=2, epochs=3, images=300, rules={**UNITS, **changes})
    run = TASK.create(tmp_path / "run", config)
    TASK.train(run)
    net = TASK.load(run.folder)
    weights = net.model.layers[0].linear.weight
    left = int((weights != 0).any(1).sum())
    assert 0 < left < 16
    assert net.count_parameters() == sum(p.numel() for p in net.model.parameters()) - 3072 * (16 - left)
    assert (weights != 0).all(1).sum() == left  # of no unit a part
    compact = TASK.measures["compact"].of(Outcome.read(run.folder))
    assert compact == (3072 + 1) * left + (left + 1) * 16 + (16 + 1) * 10
    images = torch.randn(20, 3072)
    with torch.no_grad():
        torch.testing.assert_close(net.compact()(images), net.model(images))
