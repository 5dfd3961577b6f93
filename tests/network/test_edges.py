"""Practices that an outside test broke it with: none of them brings pruned weights back or half-changes a network."""

import copy
import math
import pickle
import subprocess
import sys

import pytest
import torch
from helpers import assert_same, small, snapshot
from torch import nn
from torch.nn.utils import parametrizations

import gpf
from gpf.network import Grown, Pruned
from gpf.network.rules import batch_size

X = torch.randn(64, 6, generator=torch.Generator().manual_seed(0))
QUIET = gpf.Rules(grow_patience=None, freeze_patience=None)


def make(kind=torch.optim.Adam, rules=QUIET):
    model = gpf.MLP(6, 16, 3, depth=2)
    optimizer = kind(model.parameters(), lr=0.01)
    return model, optimizer, gpf.attach(model, optimizer, rules=rules)


def backward(model):
    nn.functional.mse_loss(model(X), X[:, :3]).backward()


def step(model, optimizer):
    optimizer.zero_grad()
    backward(model)
    optimizer.step()


def revived(net):
    """Number of pruned weights that are not zero."""
    return sum(int(torch.count_nonzero(w.parameter[w.pruned])) for layer in net.layers for w in layer.masked)


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.RMSprop, torch.optim.NAdam, torch.optim.Adagrad])
def test_optimizer_state_from_before_a_pruning_revives_nothing(kind):
    model, optimizer, net = make(kind)
    step(model, optimizer)
    saved = copy.deepcopy(optimizer.state_dict())
    net.prune(keep=0.5)
    assert net.shape().pruned == 48
    for _ in range(3):
        optimizer.load_state_dict(saved)
        step(model, optimizer)
        assert revived(net) == 0
        net.end_epoch(1.0)


def test_optimizer_state_from_before_a_freeze_fits_after_the_thaw(tmp_path):
    """torch numbers parameters by their place in the group: those that were frozen must come back to theirs."""
    model, optimizer, net = make()
    net.grow()
    step(model, optimizer)
    order, saved = list(map(id, optimizer.param_groups[0]["params"])), copy.deepcopy(optimizer.state_dict())
    for layers in ((0, 1), (1, 0), (2, 0, 1)):
        for layer in layers:
            net.freeze(layer)
        net.save(tmp_path)
        again = gpf.load(tmp_path, lambda: gpf.MLP(6, 16, 3))
        for layer in reversed(layers):
            net.thaw(layer)
            again.thaw(layer)
        assert list(map(id, optimizer.param_groups[0]["params"])) == order
        names, loaded = ({id(p): name for name, p in one.model.named_parameters()} for one in (net, again))
        assert [loaded[id(p)] for p in again.optimizer.param_groups[0]["params"]] == [names[place] for place in order]
    optimizer.load_state_dict(saved)
    for place, parameter in enumerate(optimizer.param_groups[0]["params"]):
        assert torch.equal(optimizer.state[parameter]["exp_avg"], saved["state"][place]["exp_avg"])


def test_gradients_written_through_data_revive_nothing():
    model, optimizer, net = make(torch.optim.SGD)
    net.prune(keep=0.5)
    backward(model)
    for parameter in model.parameters():
        parameter.grad.data.add_(0.01)
    optimizer.step()
    assert net.shape().pruned == 48
    assert revived(net) == 0


class Repeated(nn.Module):
    """Applies one weight several times."""

    times = 3

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x):
        for _ in range(self.times):
            x = torch.tanh(self.linear(x))
        return x


def test_a_weight_that_is_used_several_times_stays_pruned_when_steps_are_skipped():
    model = nn.Sequential(nn.Sequential(Repeated(), Repeated()), nn.Linear(6, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    net = gpf.attach(model, optimizer, stack="0", block=lambda depth: Repeated(), rules=QUIET)
    net.prune(keep=0.5)
    for iteration in range(100):
        Repeated.times = 3 if iteration % 2 else 2
        optimizer.zero_grad(set_to_none=False)
        backward(model)
        if iteration % 2:
            optimizer.step()
        assert revived(net) == 0


def test_a_network_cannot_be_pickled_and_says_what_to_do():
    model, _, net = make()
    for copied in (lambda: pickle.dumps(net), lambda: copy.copy(net)):
        with pytest.raises(
            TypeError, match=r"^hooks cannot be pickled; use save\(\) and gpf.load\(\), or pickle net.mod"
        ):
            copied()
    again = pickle.loads(pickle.dumps(model))
    assert torch.equal(again(X), model(X))


WRITERS = {
    "weight noise": lambda model, old: [p.add_(0.1) for p in model.parameters()],
    "weight noise by data": lambda model, old: [p.data.add_(0.1) for p in model.parameters()],
    "average swapped in": lambda model, old: [p.data.copy_(q) for p, q in zip(model.parameters(), old, strict=True)],
    "average swapped in as data": lambda model, old: [
        setattr(p, "data", q.clone()) for p, q in zip(model.parameters(), old, strict=True)
    ],
    "a submodule's state loaded": lambda model, old: model.layers[0].load_state_dict(
        dict(zip(model.layers[0].state_dict(), old[:2], strict=True))
    ),
    "NumPy": lambda model, old: [p.detach().numpy().__iadd__(0.1) for p in model.parameters()],
}


@pytest.mark.parametrize("writer", WRITERS)
def test_values_written_from_outside_are_not_seen_by_the_next_forward_pass_nor_kept_by_the_next_step(writer):
    model, optimizer, net = make()
    step(model, optimizer)
    old = [p.detach().clone() for p in model.parameters()]
    net.prune(keep=0.5)
    with torch.no_grad():
        WRITERS[writer](model, old)
        assert revived(net) > 0
        model.eval()(X)
    assert revived(net) == 0
    backward(model.train())
    with torch.no_grad():
        WRITERS[writer](model, old)  # between the passes and the step
    optimizer.step()
    assert revived(net) == 0


@pytest.mark.parametrize("writer", WRITERS)
def test_the_same_holds_for_weights_too_large_to_be_masked_every_time(writer):
    model = gpf.MLP(6, 256, 3, depth=2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    net = gpf.attach(model, optimizer, stack="layers", rules=QUIET)
    net.grow()
    net.grow()  # layers 1 and 2 have 65,536 weights each
    step(model, optimizer)
    old = [p.detach().clone() for p in model.parameters()]
    net.prune(keep=0.3)
    assert net.layers[1].masked
    for write_first in (True, False):
        if write_first:
            with torch.no_grad():
                WRITERS[writer](model, old)
            backward(model)
        else:
            backward(model)
            with torch.no_grad():
                WRITERS[writer](model, old)
        optimizer.step()
        assert revived(net) == 0


def test_a_single_entry_written_through_data_is_removed_from_small_weights():
    model, optimizer, net = make()
    net.prune(keep=0.5)
    weight = net.layers[0].weights[0]
    for place in torch.nonzero(weight.pruned).tolist():
        weight.parameter.data[tuple(place)] = 1.0
        backward(model)
        assert revived(net) == 0
        weight.parameter.data[tuple(place)] = 1.0
        optimizer.step()
        assert revived(net) == 0


def test_masking_in_a_forward_pass_disturbs_neither_a_graph_nor_inference_mode():
    model, optimizer, net = make()
    net.prune(keep=0.5)
    first, second = model(X).square().mean(), model(X[:8]).square().mean()  # the second masks what the first has saved
    (first + second).backward()
    with torch.inference_mode():
        assert model(X).isfinite().all()
    optimizer.step()
    assert revived(net) == 0


def test_gradients_of_a_closure_revive_nothing():
    model, optimizer, net = make(torch.optim.SGD)
    net.prune(keep=0.5)

    def closure():
        optimizer.zero_grad()
        backward(model)
        for parameter in model.parameters():
            parameter.grad.data.add_(0.1)
        return torch.tensor(0.0)

    optimizer.step(closure)
    assert revived(net) == 0
    optimizer.step(closure=closure)
    assert revived(net) == 0


def test_second_moments_of_pruned_weights_are_not_zero_because_roots_of_zeros_are_slow():
    model, optimizer, net = make()
    step(model, optimizer)
    net.prune(keep=0.5)
    weight = net.layers[0].weights[0]
    state = optimizer.state[weight.parameter]
    assert (state["exp_avg_sq"][weight.pruned] == 1).all()
    assert not state["exp_avg"][weight.pruned].any()
    for _ in range(3):
        step(model, optimizer)
    assert (state["exp_avg_sq"][weight.pruned] < 1).all()
    net.end_epoch(1.0)
    assert (state["exp_avg_sq"][weight.pruned] == 1).all()  # long before it has decayed to nothing
    assert revived(net) == 0


def test_parameters_that_were_replaced_are_noticed():
    model, _, net = make()
    model.layers.load_state_dict(model.layers.state_dict(), assign=True)
    with pytest.raises(
        ValueError, match=r"^linear.weight of layer 0 was replaced by another tensor; attach gpf again$"
    ):
        net.end_epoch(1.0)


# Parametrizations and parameters that are no weights


@pytest.mark.parametrize(
    "wrap", [parametrizations.weight_norm, parametrizations.spectral_norm, parametrizations.orthogonal]
)
def test_parametrized_weights_are_not_pruned(wrap):
    def block(depth):
        return nn.Sequential(wrap(nn.Linear(6, 6)), nn.ReLU(), nn.Linear(6, 6))

    model = nn.Sequential(nn.Sequential(block(0), block(1)), nn.Linear(6, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    net = gpf.attach(model, optimizer, stack="0", block=block, rules=QUIET)
    net.prune(keep=0.0)
    step(model, optimizer)
    assert model(X).isfinite().all()
    effective = [model[0][0][0].weight, model[0][0][2].weight]
    assert effective[0].ne(0).any()
    assert not effective[1].any()
    assert [weight.name for weight in net.layers[0].weights] == ["2.weight"]
    assert net.density == 0.5  # the second block, the newest, keeps all its 36


@pytest.mark.filterwarnings("ignore:.*weight_norm.*is deprecated:FutureWarning")  # the older form is in use
def test_torchs_older_weight_norm_is_not_pruned_either():
    layer = nn.utils.weight_norm(nn.Linear(6, 6))
    model = nn.Sequential(nn.Sequential(layer, nn.Linear(6, 6)), nn.Linear(6, 3))
    net = gpf.attach(
        model, torch.optim.Adam(model.parameters()), stack="0", block=lambda depth: nn.Linear(6, 6), rules=QUIET
    )
    assert net.layers[0].weights == []


class Selective(nn.Module):
    """Parameters in which zero means absent, and others."""

    def __init__(self):
        super().__init__()
        self.A_log = nn.Parameter(torch.randn(6, 4))
        self.mixing = nn.Parameter(torch.randn(6, 6))
        self.cls_token = nn.Parameter(torch.randn(1, 2, 6))
        self.time_decay = nn.Parameter(torch.randn(2, 6))
        self.offset = nn.Parameter(torch.randn(1, 1, 6))
        self.table = nn.Embedding(4, 6)
        self.narrow = nn.Linear(6, 1)

    def forward(self, x):
        return x @ self.mixing


def test_what_is_no_connection_is_not_pruned():
    model = nn.Sequential(nn.Sequential(Selective(), Selective()), nn.Linear(6, 3))
    optimizer = torch.optim.Adam(model.parameters())
    net = gpf.attach(model, optimizer, stack="0", block=lambda depth: Selective(), rules=QUIET)
    assert [weight.name for weight in net.layers[0].weights] == ["mixing", "narrow.weight"]
    assert "6 of 48" not in net.prune(keep=0.5).reason
    assert model[0][0].A_log.ne(0).all()


def test_users_choose_what_is_prunable(tmp_path):
    def build():
        return nn.Sequential(nn.Sequential(Selective(), Selective()), nn.Linear(6, 3))

    def chosen(name, parameter):
        return name in ("mixing", "A_log")

    model = build()
    options = {"block": lambda depth: Selective(), "prunable": chosen}
    net = gpf.attach(model, torch.optim.Adam(model.parameters()), stack="0", rules=QUIET, **options)
    assert [weight.name for weight in net.layers[0].weights] == ["A_log", "mixing"]
    net.prune(keep=0.5)
    net.save(tmp_path)
    assert_same(snapshot(gpf.load(tmp_path, build, **options)), snapshot(net))
    with pytest.raises(gpf.network.CheckpointError, match="pass the same prunable to load as to attach$"):
        gpf.load(tmp_path, build, block=options["block"])


def test_a_choice_of_what_cannot_be_pruned_is_refused():
    model = gpf.MLP(6, 8, 3)
    with pytest.raises(
        ValueError, match=r"^prunable must choose plain weights of two dimensions or more, got linear.bias$"
    ):
        gpf.attach(model, torch.optim.Adam(model.parameters()), prunable=lambda name, parameter: True)


# torch.compile


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_gathering_activations_does_not_recompile_at_every_step():
    compilations = []

    def backend(graph, inputs):
        compilations.append(1)
        return graph.forward

    torch.compiler.reset()
    model = gpf.MLP(6, 16, 3, depth=2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    compiled = torch.compile(model, backend=backend)
    net = gpf.attach(
        compiled, optimizer, rules=gpf.Rules.classifier(warmup=0, grow_patience=None, freeze_patience=None)
    )
    for _ in range(12):
        step(compiled, optimizer)
    first = len(compilations)
    for _ in range(3):
        net.end_epoch(1.0)
        for _ in range(4):
            step(compiled, optimizer)
    assert len(compilations) == first <= 2
    assert net.layers[0].activations == 4
    twin = copy.deepcopy(model).train()
    seen = []
    twin.layers[0].register_forward_hook(lambda module, inputs, output: seen.append(output.abs().mean(0)))
    twin(X)
    net.layers[0].forget_activations()
    backward(compiled)
    torch.testing.assert_close(net.layers[0].activation, seen[0].detach())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_compiled_model_never_sees_values_written_from_outside():
    torch.compiler.reset()
    model, optimizer, _ = make()
    _.detach()
    compiled = torch.compile(model, backend="eager")
    net = gpf.attach(compiled, optimizer, rules=QUIET)
    net.prune(keep=0.5)
    expected = compiled(X).detach()
    for layer in net.layers:
        for weight in layer.masked:
            weight.parameter.data += 0.1 * weight.pruned
    assert torch.equal(compiled(X), expected)
    net.grow()
    renewed = net.renew(compiled)
    net.layers[0].weights[0].parameter.data += 0.1 * net.layers[0].weights[0].pruned
    torch.testing.assert_close(renewed(X), expected)


# Loading


def test_grown_blocks_of_another_dtype_are_loaded(tmp_path):
    def build():
        return gpf.MLP(6, 8, 3).double()

    model = build()
    net = gpf.attach(model, torch.optim.Adam(model.parameters()))
    net.grow()
    net.save(tmp_path)
    again = gpf.load(tmp_path, build)
    assert {p.dtype for p in again.model.parameters()} == {torch.float64}
    assert torch.equal(again.model(X.double()), model(X.double()))


SCHEDULERS = {
    "lambda": lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda step: min(1.0, step / 4)),
    "one cycle": lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=20),
    "steps": lambda o: torch.optim.lr_scheduler.MultiStepLR(o, [3, 6], 0.1),
    "cosine after warm-up": lambda o: torch.optim.lr_scheduler.SequentialLR(
        o,
        [
            torch.optim.lr_scheduler.LinearLR(o, 0.1, total_iters=3),
            torch.optim.lr_scheduler.CosineAnnealingLR(o, 17),
        ],
        milestones=[3],
    ),
    "plateau": lambda o: torch.optim.lr_scheduler.ReduceLROnPlateau(o, patience=1),
}


@pytest.mark.parametrize("name", SCHEDULERS)
@pytest.mark.filterwarnings("ignore:The epoch parameter in `scheduler.step:UserWarning")  # torch's own SequentialLR
def test_a_load_is_invisible_to_a_scheduler(name, tmp_path):
    def rates(net, scheduler, steps):
        found = []
        for _ in range(steps):
            step(net.model, net.optimizer)
            scheduler.step(*([1.0] if name == "plateau" else []))
            found.append([group["lr"] for group in net.optimizer.param_groups])
        return found

    model, optimizer, net = make()
    scheduler = SCHEDULERS[name](optimizer)
    rates(net, scheduler, 4)
    net.grow()
    net.save(tmp_path, scheduler=scheduler)
    expected = rates(net, scheduler, 5)
    again = gpf.load(tmp_path, lambda: gpf.MLP(6, 16, 3), scheduler=SCHEDULERS[name])
    assert rates(again, again.schedulers[0], 5) == expected
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), again.model.parameters(), strict=True))


def test_what_is_no_scheduler_is_refused_and_the_number_must_be_right(tmp_path):
    _, optimizer, net = make()
    with pytest.raises(ValueError, match="^scheduler must be a learning-rate scheduler or a list of them, got int$"):
        net.save(tmp_path, scheduler=3)
    net.save(tmp_path)
    with pytest.raises(gpf.network.CheckpointError, match=r"scheduler must make as many as were saved \(0\), got 1$"):
        gpf.load(tmp_path, lambda: gpf.MLP(6, 16, 3), scheduler=SCHEDULERS["lambda"])


# Rules


def test_a_factory_that_fails_after_a_drop_leaves_everything_as_it_was():
    net, *_ = small(rules=gpf.Rules(drop=0.5, drop_window=1, mode="max", freeze_patience=None, grow_patience=5))
    net.end_epoch(1.0)
    net.freeze(0)
    before = snapshot(net), net.epoch, net.plateau, list(net.events)
    net.make_block = lambda depth: 1 / 0
    with pytest.raises(ZeroDivisionError):
        net.end_epoch(0.1)
    assert_same(snapshot(net), before[0])
    assert (net.epoch, net.plateau, net.events) == before[1:]
    del net.make_block
    net.make_block = net.model.make_block
    assert [event.kind for event in net.end_epoch(0.1)] == ["thawed", "grown"]


def test_the_rules_never_freeze_the_last_thing_that_learns():
    model = nn.Sequential(*(nn.Sequential(nn.Linear(6, 6), nn.ReLU()) for _ in range(2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    rules = gpf.Rules(freeze_patience=1, grow_patience=None)
    net = gpf.attach(model, optimizer, stack="", block=lambda depth: nn.Linear(6, 6), rules=rules)
    for _ in range(4):
        net.end_epoch(1.0)
    assert net.frozen == (0,)
    model(X).sum().backward()  # something still learns


def test_a_threshold_of_zero_grows_on_a_constant_metric():
    net, *_ = small(rules=gpf.Rules(grow_patience=2, grow_threshold=0.0, prune_patience=None, freeze_patience=None))
    events = [event for _ in range(3) for event in net.end_epoch(1.0)]
    assert [event.kind for event in events] == ["grown"]
    assert events[0].reason == "the metric improved by 0 in 2 epochs, not more than 0"
    improving, *_ = small(rules=net.rules)
    assert [event for epoch in range(9) for event in improving.end_epoch(1.0 - 1e-6 * epoch)] == []


def test_a_prune_patience_of_zero_prunes_in_the_epoch_of_the_growth():
    rules = gpf.Rules(
        grow_patience=1,
        prune_patience=0,
        freeze_patience=None,
        saliency_threshold=9.0,
        belief_threshold=2.0,
        max_depth=2,
    )
    net, *_ = small(rules=rules)
    net.end_epoch(1.0)
    grown, pruned = net.end_epoch(1.0)
    assert (type(grown), type(pruned), pruned.layers) == (Grown, Pruned, (0,))
    assert net.end_epoch(1.0) == []
    one, *_ = small(rules=gpf.Rules(**{**vars(rules), "prune_patience": 1}))
    kinds = [[type(event) for event in one.end_epoch(1.0)] for _ in range(4)]
    assert kinds == [[], [Grown], [Pruned], []]


def test_belief_that_has_risen_to_its_threshold_protects():
    rules = gpf.Rules(saliency_threshold=9.0, weight_threshold=0.0, freeze_patience=None, grow_patience=None)
    for epochs, pruned in ((29, 48), (30, 0)):
        fresh, *_ = small(rules=rules, depth=2)
        for _ in range(epochs):
            fresh.end_epoch(1.0)
        assert fresh.prune().after.pruned == pruned


def test_with_equal_patiences_the_newest_layer_is_spared():
    rules = gpf.Rules(
        grow_patience=2,
        prune_patience=2,
        saliency_threshold=9.0,
        belief_threshold=2.0,
        freeze_patience=None,
        max_depth=3,
    )
    net, *_ = small(rules=rules)
    events = [event for _ in range(5) for event in net.end_epoch(1.0)]
    assert [(event.kind, event.layers) for event in events] == [("grown", (1,)), ("pruned", (0,)), ("grown", (2,))]


@pytest.mark.parametrize("loss", [math.nan, -2000.0])
def test_a_batch_size_that_is_no_number_is_refused_in_one_sentence(loss):
    with pytest.raises(ValueError, match=rf"^loss must give a finite batch size 64 exp\(-0.5 loss\), got {loss}$"):
        batch_size(64, loss, 0.5)


def test_everything_is_there_in_a_fresh_process():
    code = "import gpf; gpf.network.register_identity; gpf.network.zero_outputs('x'); print(gpf.network.Rules.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "Rules\n"


# Several optimizers


def test_two_optimizers_train_one_model(tmp_path):
    def build():
        return gpf.MLP(6, 8, 3)

    model = build()
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    both = [torch.optim.Muon(matrices, lr=0.02), torch.optim.AdamW(vectors, lr=0.01)]
    net = gpf.attach(model, both, rules=gpf.Rules(saliency="obd", grow_patience=None, freeze_patience=None))

    def train(net, steps=3):
        for _ in range(steps):
            for optimizer in net.optimizers:
                optimizer.zero_grad()
            backward(net.model)
            for optimizer in net.optimizers:
                optimizer.step()

    train(net)
    net.grow()
    new = net.layers[1].block.linear
    assert [net.optimizers.find(p)[1] for p in (new.weight, new.bias)] == both
    train(net)
    assert net.layers[0].gradients == 3  # since the growth, one for each pair of steps
    net.prune(keep=0.5)
    train(net)
    assert revived(net) == 0
    net.freeze(0)
    net.thaw(0)
    assert net.optimizers.find(net.layers[0].block.linear.weight)[1] is both[0]
    net.save(tmp_path)
    again = gpf.load(tmp_path, build)
    assert_same(snapshot(again), snapshot(net))
    train(net)
    train(again)
    assert_same(snapshot(again), snapshot(net))
    with pytest.raises(ValueError, match="^this network has 2 optimizers; see net.optimizers$"):
        _ = net.optimizer


@pytest.mark.parametrize(
    ("optimizers", "message"),
    [
        (lambda p: [], "^optimizer must be an optimizer or several, got none$"),
        (lambda p: [3], "^optimizer must be a torch optimizer or a sequence of them, got int$"),
        (lambda p: [torch.optim.SGD(p), torch.optim.Adam(p)], "^optimizer: each parameter must be in one group of one"),
        (lambda p: torch.optim.LBFGS(p), "^optimizer must keep a state for each parameter, got LBFGS"),
    ],
)
def test_optimizers_that_cannot_work_are_refused(optimizers, message):
    model = gpf.MLP(6, 8, 3)
    with pytest.raises(ValueError, match=message):
        gpf.attach(model, optimizers(list(model.parameters())))


# Averages of weights


def test_an_average_of_the_weights_follows_growth_and_pruning():
    model, optimizer, net = make(rules=gpf.Rules(grow_patience=None, freeze_patience=None, grow_undoable=True))
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    net.follow(average)

    def train():
        for _ in range(3):
            step(model, optimizer)
            average.update_parameters(model)

    train()
    net.grow()
    assert len(average.module.layers) == 3
    train()
    net.prune(keep=0.5)
    train()
    for layer, block in zip(net.layers, average.module.layers, strict=True):
        for weight in layer.masked:
            assert not block.get_parameter(weight.name)[weight.pruned].any()
    assert not torch.equal(average(X), model(X))
    net.undo()
    assert len(average.module.layers) == 2
    train()


def test_what_is_no_copy_cannot_follow():
    model, _, net = make()
    with pytest.raises(
        ValueError, match=r"^follow needs a copy of the model, got one that differs in layers.1.linear.wei"
    ):
        net.follow(gpf.MLP(6, 16, 3))
    with pytest.raises(ValueError, match="^follow needs a copy of the model, got the model itself$"):
        net.follow(model)


# Whole units


def attached_units(rules=None, depth=3, kind=torch.optim.Adam):
    model = gpf.MLP(6, 16, 3, depth=depth)
    optimizer = kind(model.parameters(), lr=0.01)
    rules = rules or gpf.Rules(granularity="unit", grow_patience=None, freeze_patience=None)
    net = gpf.attach(model, optimizer, rules=rules)
    step(model, optimizer)
    return model, optimizer, net


@pytest.mark.parametrize("saliency", ["magnitude", "obd"])
def test_units_go_whole_by_the_saliency_of_their_weights_and_a_quarter_of_each_layer_stays(saliency):
    """Of a half that is to be kept, every layer keeps a half; magnitudes count as norms do, and OBD's costs as sums."""
    rules = gpf.Rules(granularity="unit", saliency=saliency, grow_patience=None, freeze_patience=None)
    model, optimizer, net = attached_units(rules)
    costs = []
    for layer in net.layers[:2]:
        weight = layer.weights[0].parameter.detach()
        square = optimizer.state[layer.weights[0].parameter]["exp_avg_sq"] / 0.001  # after one step
        inputs = weight.shape[1]
        cost = weight.abs().mean(1) * inputs**0.5 if saliency == "magnitude" else (weight**2 * square / 2).sum(1)
        cost[cost.topk(4).indices] = torch.inf
        costs.append(cost)
    limit = torch.cat(costs).sort().values[15]
    event = net.prune(keep=0.5)
    assert event.reason.startswith("16 of 32 units with the lowest ")
    for layer, cost in zip(net.layers, costs, strict=False):
        pruned = layer.weights[0].pruned
        dead = torch.zeros_like(cost, dtype=torch.bool) if pruned is None else pruned.all(1)
        assert torch.equal(dead, cost <= limit)
        assert pruned is None or torch.equal(pruned.any(1), dead)
    assert net.prune(keep=0.5).reason.startswith("0 of 32 units")
    for _ in range(5):
        step(model, optimizer)
    small = net.compact()
    kept = 22 * 16 - sum(int(layer.weights[0].pruned.all(1).sum()) for layer in net.layers[:2])
    assert sum(block.linear.out_features for block in small.layers) == 48 - 16
    assert kept > 0
    torch.testing.assert_close(small(X), model(X), rtol=1e-5, atol=1e-5)


def test_units_go_by_the_mean_belief_in_their_weights():
    rules = gpf.Rules(
        granularity="unit", belief_threshold=0.3, saliency_threshold=9.0, grow_patience=None, freeze_patience=None
    )
    _, _, net = attached_units(rules)
    for layer in net.layers[:2]:
        layer.weights[0].belief.fill_(0.9)
    net.layers[0].weights[0].belief[3] = 0.29
    net.layers[1].weights[0].belief[5, :12] = 0.0  # on average 0.225
    net.layers[1].weights[0].belief[6, :8] = 0.0  # on average 0.45
    event = net.prune()
    assert event.reason.startswith("2 of 32 units with belief below 0.3")
    assert [torch.nonzero(layer.weights[0].pruned.all(1)).flatten().tolist() for layer in net.layers[:2]] == [[3], [5]]


def test_a_layer_keeps_its_best_unit_whatever_share_is_asked_for():
    model, _, net = attached_units()
    best = [layer.weights[0].parameter.abs().mean(1).argmax() for layer in net.layers[:2]]
    net.prune(keep=0.0)
    for layer, unit in zip(net.layers, best, strict=False):
        assert torch.nonzero(~layer.weights[0].pruned.all(1)).flatten().tolist() == [unit]
    assert [block.linear.out_features for block in net.compact().layers] == [1, 1, 16]


# Growth behind a gate


def test_any_block_grows_behind_a_gate_and_is_loaded_again(tmp_path):
    def block(depth):
        return nn.Sequential(nn.Linear(6, 6), nn.GELU())

    def build():
        return nn.Sequential(nn.Sequential(block(0)), nn.Linear(6, 3))

    model = build()
    optimizer = torch.optim.AdamW(
        [{"params": [p for p in model.parameters() if p.dim() > 1]},
         {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0}], lr=0.01,
    )  # fmt: skip
    rules = gpf.Rules(grow_init="gated", grow_patience=None, freeze_patience=None)
    net = gpf.attach(model, optimizer, stack="0", block=block, rules=rules)
    before = model(X).detach()
    net.grow()
    torch.testing.assert_close(model(X).detach(), before)
    groups = {name: net.optimizers.find(p)[0] for name, p in net.layers[1].block.named_parameters()}
    assert groups == {"gate": 0, "block.0.weight": 0, "block.0.bias": 1}
    for _ in range(3):
        step(model, optimizer)
    net.grow()
    for _ in range(3):
        step(model, optimizer)
    assert net.layers[1].block.gate != 0
    net.prune(keep=0.5)
    net.save(tmp_path)
    again = gpf.load(tmp_path, build, block=block)
    assert_same(snapshot(again), snapshot(net))
    assert torch.equal(again.model(X), model(X))
