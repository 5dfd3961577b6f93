"""Torch models layer by layer: what is captured, plasticity, folds, and the recorder."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

import gpf
from gpf.spectra import folds, inspect, plasticity
from gpf.spectra.capture import capture
from gpf.spectra.folds import relu_chain, walk
from gpf.spectra.plasticity import effective_rank, held_rank, singular_values, stable_rank
from gpf.spectra.recorder import Recorder, read_snapshots, write_snapshot

pytestmark = pytest.mark.usefixtures("one_torch_thread")


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.norm = nn.BatchNorm2d(8)
        self.relu = nn.ReLU()
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.relu(self.norm(self.conv(x))).mean((2, 3)))


def test_captured_is_what_went_through():
    model, x = gpf.MLP(10, 16, 3, depth=2, layer_norm=True), torch.randn(30, 10)
    first, second, head = capture(model, x)
    assert [layer.name for layer in (first, second, head)] == ["layers.0.linear", "layers.1.linear", "head"]
    before = model.layers[0].linear(x)
    torch.testing.assert_close(first.outputs, before)
    torch.testing.assert_close(first.activated, model.layers[0](x))
    torch.testing.assert_close(second.inputs, model.layers[0](x))
    assert (first.normalised, second.normalised) == (True, False)
    assert isinstance(first.activation, nn.ReLU)
    assert head.activation == "linear"
    torch.testing.assert_close(head.activated, model(x))


def test_nothing_of_the_model_changes():
    model = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 2))
    model[3].eval()
    before, modes = copy.deepcopy(model.state_dict()), [module.training for module in model.modules()]
    inspect(model, torch.randn(20, 5))
    assert modes == [module.training for module in model.modules()]
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert not any(module._forward_hooks for module in model.modules())


def test_convolutions_and_transformers_are_inspected_too():
    table = inspect(ConvNet(), torch.randn(4, 3, 12, 12))
    assert [layer.name for layer in table.layers] == ["conv", "head"]
    assert table.layers[0].weights.shape == (8, 27)
    assert table.layers[0].gram.spectrum.size == 8
    assert len(capture(ConvNet(), torch.randn(4, 3, 12, 12))[0].outputs) == 4 * 100  # positions are samples
    assert table.layers[0].gram.law is None  # batch normalisation stands between, which no prediction knows
    assert table.layers[1].gram.law is not None
    config = GPT2Config(n_layer=1, n_embd=32, n_head=2, vocab_size=50, n_positions=16)
    heads = inspect(GPT2LMHeadModel(config), torch.randint(0, 50, (3, 10)))
    names = [layer.name.split(".")[-1] for layer in heads.layers]
    assert names == ["c_attn", "c_proj", "c_fc", "c_proj", "lm_head"]  # GPT-2's own linear layers, too
    assert heads.layers[2].weights.shape == (128, 32)
    text = str(table)
    assert "conv" in text
    assert "8x27" in text


def test_a_fresh_network_is_as_random_as_predicted_and_a_trained_layer_is_not():
    torch.manual_seed(0)
    model, x = gpf.MLP(100, 200, 10, depth=1), torch.randn(300, 100)
    fresh = inspect(model, x).layers[0]
    assert fresh.gram.kolmogorov < 0.03
    assert len(fresh.weights.bulk.spikes) == 0
    with torch.no_grad():  # what training does: one strong direction
        model.layers[0].linear.weight += 0.3 * torch.outer(torch.randn(200).sign(), torch.randn(100).sign())
    trained = inspect(model, x).layers[0]
    assert len(trained.weights.bulk.spikes) == 1
    assert trained.gram.kolmogorov > 2 * fresh.gram.kolmogorov


class Functional(nn.Module):
    """A ReLU that is a function, and a sum before another one that is a module."""

    def __init__(self, dead=False):
        super().__init__()
        self.a, self.b, self.head, self.relu = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 2), nn.ReLU()
        if dead:
            nn.init.constant_(self.a.bias, -100.0)

    def forward(self, x):
        h = torch.relu(self.a(x))
        return self.head(self.relu(h + self.b(h)))


def test_what_a_layer_is_followed_by_is_not_guessed():
    """Activations are what the next layer was given; nothing is predicted where something unknown stands between."""
    model, x = Functional(), torch.randn(40, 6)
    a, b, _ = capture(model, x)
    h = torch.relu(model.a(x))
    torch.testing.assert_close(a.activated, h)
    torch.testing.assert_close(b.activated, torch.relu(h + model.b(h)))
    assert not a.predictable
    assert not b.predictable
    report = inspect(model, x, quiet=True)
    assert [layer.gram.law is None for layer in report.layers] == [True, True, False]
    assert plasticity(Functional(dead=True), x)[0].dead == 1.0


class Square(nn.Module):
    def forward(self, x):
        return x * x - 1


@pytest.mark.parametrize("module", [Square(), nn.ReLU(inplace=True), nn.Softplus()])
def test_any_activation_that_works_on_each_element_is_known(module):
    model, x = nn.Sequential(nn.Linear(5, 7), module, nn.Linear(7, 2)), torch.randn(20, 5)
    first = capture(model, x)[0]
    assert first.activation is module
    torch.testing.assert_close(first.outputs, model[0](x))
    torch.testing.assert_close(first.activated, module(model[0](x)))


def test_what_mixes_units_is_no_activation():
    model = nn.Sequential(nn.Linear(5, 7), nn.Softmax(dim=-1), nn.Linear(7, 2))
    assert capture(model, torch.randn(20, 5))[0].activation == "linear"
    assert inspect(model, torch.randn(20, 5), quiet=True).layers[0].gram.law is None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_models_of_any_precision(dtype):
    report = inspect(gpf.MLP(10, 16, 3).to(dtype), torch.randn(30, 10, dtype=dtype), quiet=True)
    assert report.layers[0].weights.rank == 10


def test_a_table_is_printed_unless_it_is_not_wanted(capsys):
    report = inspect(gpf.MLP(10, 16, 3), torch.randn(30, 10))
    assert capsys.readouterr().out == f"{report}\n"
    inspect(gpf.MLP(10, 16, 3), quiet=True)
    assert capsys.readouterr().out == ""


def test_pruned_and_frozen_layers_are_inspected_as_they_are():
    model = gpf.MLP(20, 32, 4)
    net = gpf.attach(
        model, torch.optim.Adam(model.parameters()), rules=gpf.Rules(weight_threshold=9, saliency_threshold=9)
    )
    net.grow()
    net.prune()  # everything in the first layer
    net.freeze(0)
    first, second, _ = inspect(model, torch.randn(50, 20)).layers
    assert first.weights.rank == 0
    assert first.weights.bulk is None
    assert first.gram.law is None  # no weights to compare with
    assert np.isfinite(first.gram.spectrum.values).all()
    assert second.weights.rank == 32
    assert first.plasticity.weight_magnitude == 0.0
    str(inspect(model, torch.randn(50, 20)))


def test_without_a_batch_only_weights_are_looked_at():
    report = inspect(gpf.MLP(20, 32, 4))
    assert [layer.gram for layer in report.layers] == [None, None]
    assert "20" in str(report)


@pytest.mark.parametrize(
    ("model", "batch", "message"),
    [
        (gpf.MLP(3, 8, 2), torch.zeros(0, 3), r"batch must have at least one sample, got the shape \(0, 3\)"),
        (gpf.MLP(3, 8, 2), torch.full((2, 3), torch.nan), "batch must hold finite numbers only"),
        (gpf.MLP(3, 8, 2), "text", "batch must be a tensor or .*, got str"),
        (nn.ReLU(), torch.ones(2, 3), "model must have a linear or convolutional layer, got ReLU"),
    ],
)
def test_what_cannot_be_inspected_is_refused(model, batch, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        inspect(model, batch)


def test_weights_that_are_not_finite_are_named():
    model = gpf.MLP(3, 8, 2)
    with torch.no_grad():
        model.layers[0].linear.weight[1, 2] = torch.nan
    for batch in (None, torch.ones(4, 3)):
        with pytest.raises(
            ValueError, match=r"^model must have finite weights only, got others in layers\.0\.linear\.weight"
        ):
            inspect(model, batch)


def test_a_layer_of_one_unit_and_a_batch_of_one_have_defined_answers():
    report = inspect(nn.Sequential(nn.Linear(4, 1), nn.ReLU()), torch.randn(1, 4))
    assert report.layers[0].weights.rank == 1
    assert report.layers[0].gram.law is None
    assert report.layers[0].gram.spectrum.size == 1


# Plasticity


def test_ranks_of_known_matrices():
    assert effective_rank(np.ones(7)) == pytest.approx(7.0)
    assert effective_rank(np.array([5.0, 0.0, 0.0])) == pytest.approx(1.0)
    assert effective_rank(np.array([1.0, 1.0, 2.0])) == pytest.approx(np.exp(1.5 * np.log(2)))
    assert stable_rank(np.array([2.0, 1.0, 1.0])) == pytest.approx(1.5)
    assert held_rank(np.array([98.0, 1.0, 1.0])) == 2  # 99 % exactly
    assert held_rank(np.array([97.0, 1.0, 1.0, 1.0])) == 3
    assert (effective_rank(np.zeros(3)), stable_rank(np.zeros(3)), held_rank(np.zeros(3))) == (0.0, 0.0, 0)
    a = np.random.default_rng(0).normal(size=(6, 9))
    np.testing.assert_allclose(singular_values(a) ** 2, np.linalg.eigvalsh(a @ a.T)[::-1], atol=1e-10)


def test_dead_and_dormant_units_are_counted():
    model = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.0, 1.0], [-2.0, 0.0]]))
        model[0].bias.copy_(torch.tensor([0.0, -1.0, 0.0, 0.0]))
    x = torch.ones(250, 2)
    x[:, 1] = -1.0
    x[:2, 1] = 1.0  # the third unit is on for 0.8 % of the samples; the fourth never, for x0 > 0
    first, last = plasticity(model, x)
    assert (first.dead, first.dormant) == (0.5, 0.75)
    assert first.units == 4
    assert first.weight_magnitude == pytest.approx((1 + 1 + 2) / 3)  # of weights that are not zero
    assert first.gradient_norm is None
    model(x).sum().backward()
    assert plasticity(model, x)[1].gradient_norm == pytest.approx(float(model[2].weight.grad.norm()))
    assert last.name == "2"


def test_a_unit_that_is_on_for_just_one_sample_in_a_hundred_is_not_dormant():
    model = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 1))
    with torch.no_grad():
        model[0].weight.fill_(1.0)
        model[0].bias.copy_(torch.tensor([0.0, -1.5]))
    for count, dormant in ((2, 0.0), (1, 0.5)):
        x = torch.ones(200, 1)
        x[:count] = 2.0
        assert plasticity(model, x)[0].dormant == dormant


# Folds


def test_regions_of_a_worked_example():
    """relu(x), relu(-x), then relu(|x| - 0.5), then relu(that - 0.25): borders at 0, at +-0.5 and at +-0.75."""
    layers = [
        (np.array([[1.0], [-1.0]]), np.zeros(2)),
        (np.array([[1.0, 1.0]]), np.array([-0.5])),
        (np.array([[1.0]]), np.array([-0.25])),
    ]
    first, second, third = walk(layers, np.array([-1.0]), np.array([1.0]))
    assert first == (2, 2, 1.0)  # both units switch, at the same place: two regions
    assert second == (2, 4, 1.0)
    assert third == (2, 6, 1.0)


def test_a_unit_at_its_border_is_off():
    """relu(-x) from 0 to 1 is zero all the way, and from -1 to 0 it is on until the end."""
    layer = [(np.array([[-1.0]]), np.zeros(1))]
    assert walk(layer, np.array([0.0]), np.array([1.0])) == [(0, 1, 0.0)]
    assert walk(layer, np.array([-1.0]), np.array([0.0]))[0][0] == 1


@pytest.mark.parametrize("seed", range(3))
def test_no_region_is_missed(seed):
    """Against a walk in very small steps that looks at every unit."""
    torch.manual_seed(seed)
    model = gpf.MLP(6, 12, 2, depth=3)
    data = torch.randn(2, 6)
    found = folds(model, data, paths=1)
    along = torch.linspace(0, 1, 200_001, dtype=torch.float64)[:, None]
    values, patterns = (1 - along) * data[0].double() + along * data[1].double(), []
    for n, (weight, bias) in enumerate(relu_chain(model)):
        before = values @ torch.from_numpy(weight).T + torch.from_numpy(bias)
        patterns.append(before > 0)
        values = before.clamp(min=0)
        switches = (patterns[n][1:] != patterns[n][:-1]).sum()
        changes = (torch.cat(patterns, 1)[1:] != torch.cat(patterns, 1)[:-1]).any(1).sum()
        assert found[n].crossings[0] == int(switches)
        assert found[n].regions[0] == int(changes) + 1


def test_an_identity_layer_folds_nothing_new_and_pruning_unfolds():
    """What growth adds computes the same; a layer without weights has no border that a path could cross."""
    model, data = gpf.MLP(10, 32, 2), torch.randn(40, 10)
    net = gpf.attach(
        model, torch.optim.Adam(model.parameters()), rules=gpf.Rules(weight_threshold=9, saliency_threshold=9)
    )
    alone = folds(model, data)[0].regions
    net.grow()
    assert (folds(model, data)[0].regions == alone).all()
    assert (folds(model, data)[1].regions == alone).all()
    net.prune()
    assert folds(model, data)[0].crossings.sum() == 0


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.relu, self.b, self.again, self.head = (
            nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 1),
        )  # fmt: skip

    def forward(self, x):
        h = self.relu(self.a(x))
        return self.head(self.again(self.b(h + x)))


@pytest.mark.parametrize(
    ("model", "data", "message"),
    [
        (
            gpf.MLP(3, 8, 2, layer_norm=True),
            torch.randn(5, 3),
            "model must be a chain of Linear and ReLU, got LayerNorm",
        ),
        (nn.Linear(3, 2), torch.randn(5, 3), "model must be .*, got no Linear followed by a ReLU"),
        (gpf.MLP(3, 8, 2), torch.randn(1, 3), r"data must be at least two points of 3 numbers, got the shape \(1, 3\)"),
        (gpf.MLP(3, 8, 2), torch.randn(5, 4), r"data must be .*, got the shape \(5, 4\)"),
        (gpf.MLP(3, 8, 2), torch.full((5, 3), torch.nan), "data must hold finite numbers only"),
        (Residual(), torch.randn(5, 3), "model must apply its layers one after another"),
    ],
)
def test_folds_of_anything_else_are_refused(model, data, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        folds(model, data)


# The recorder


def recorded(watcher):
    torch.manual_seed(0)
    model = gpf.MLP(4, 8, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    net = gpf.attach(model, optimizer, rules=gpf.Rules(grow_undoable=True))
    net.watchers.append(watcher)

    def learn():
        optimizer.zero_grad()
        model(torch.randn(10, 4)).square().sum().backward()
        optimizer.step()

    learn()
    weights = [model.layers[0].linear.weight.detach().clone()]
    net.grow()
    learn()
    weights.append(model.layers[0].linear.weight.detach().clone())
    net.freeze(0)
    net.thaw(0)
    net.undo()
    return net, weights


def test_there_is_a_snapshot_before_and_after_each_event():
    recorder = Recorder()
    _, weights = recorded(recorder)
    seen = [(s.number, s.when, s.depth, s.event and s.event.kind) for s in recorder.snapshots]
    assert seen == [
        (0, "before", 1, None), (0, "after", 2, "grown"), (1, "before", 2, None), (1, "after", 2, "frozen"),
        (2, "after", 2, "thawed"), (3, "after", 1, "undone"),
    ]  # nothing was learnt between the last three events  # fmt: skip
    first = [s.model.layers[0].linear.weight for s in recorder.snapshots]
    for n, wanted in ((0, 0), (1, 0), (2, 1), (3, 1), (5, 0)):
        assert torch.equal(first[n], weights[wanted])
    assert recorder.snapshots[1].label == "epoch 0, grown 1"


def test_snapshots_are_read_back_as_they_were(tmp_path):
    kept = Recorder()
    recorded(kept)
    recorded(Recorder(lambda snapshot: write_snapshot(tmp_path, snapshot)))
    read = list(read_snapshots(tmp_path, lambda depth: gpf.MLP(4, 8, 2, depth)))
    assert [(s.number, s.when, s.event) for s in read] == [(s.number, s.when, s.event) for s in kept.snapshots]
    for mine, theirs in zip(read, kept.snapshots, strict=True):
        states = mine.model.state_dict(), theirs.model.state_dict()
        assert all(torch.equal(states[0][name], states[1][name]) for name in states[1])


def test_snapshots_of_a_network_whose_units_were_removed_are_read_back(tmp_path):
    torch.manual_seed(0)
    model = gpf.MLP(4, 8, 2, 2)
    optimizer = torch.optim.Adam(model.parameters())
    net = gpf.attach(model, optimizer, rules=gpf.Rules.fixed(granularity="unit", remove_units=True))
    net.watchers.append(Recorder(lambda snapshot: write_snapshot(tmp_path, snapshot)))
    net.prune(keep=0.5)
    read = list(read_snapshots(tmp_path, lambda depth: gpf.MLP(4, 8, 2, depth)))
    assert [s.event and s.event.kind for s in read] == [None, "pruned", "removed"]
    assert [sum(layer.linear.out_features for layer in s.model.layers) for s in read] == [16, 16, 12]
    x = torch.randn(5, 4)
    torch.testing.assert_close(read[-1].model(x), model(x))
    torch.testing.assert_close(read[-2].model(x), model(x))


def test_a_damaged_snapshot_is_named(tmp_path):
    recorded(Recorder(lambda snapshot: write_snapshot(tmp_path, snapshot)))
    (tmp_path / "0001-before.safetensors").write_bytes(b"nothing")
    with pytest.raises(
        ValueError, match=r"0001-before\.safetensors must be a file written by a run, but is damaged"
    ) as caught:
        list(read_snapshots(tmp_path, lambda depth: gpf.MLP(4, 8, 2, depth)))
    assert "\n" not in str(caught.value)
