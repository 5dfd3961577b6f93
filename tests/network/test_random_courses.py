"""Random courses of events and of training practices, with a dozen optimizers: what must hold holds after each."""

import copy
import random
import tempfile

import pytest
import torch
from helpers import assert_consistent, assert_same, data, snapshot
from torch import nn

import gpf

WIDTH = 7
X, Y = data()


def muon_and_adamw(model):
    matrices = [p for p in model.parameters() if p.dim() > 1]
    return [torch.optim.Muon(matrices, lr=0.01), torch.optim.AdamW([p for p in model.parameters() if p.dim() < 2])]


def of(kind, **options):
    return lambda model: [kind(model.parameters(), **options)]


OPTIMIZERS = {
    "SGD": of(torch.optim.SGD, lr=0.05),
    "Nesterov": of(torch.optim.SGD, lr=0.02, momentum=0.9, nesterov=True, weight_decay=0.01),
    "fused SGD": of(torch.optim.SGD, lr=0.02, momentum=0.9, fused=True),
    "Adam": of(torch.optim.Adam, lr=0.01, weight_decay=0.01),
    "fused AMSGrad": of(torch.optim.Adam, lr=0.01, amsgrad=True, fused=True),
    "AdamW": of(torch.optim.AdamW, lr=0.01, weight_decay=0.1),
    "RMSprop": of(torch.optim.RMSprop, lr=0.005, momentum=0.5, centered=True),
    "NAdam": of(torch.optim.NAdam, lr=0.01),
    "RAdam": of(torch.optim.RAdam, lr=0.01),
    "Adamax": of(torch.optim.Adamax, lr=0.01),
    "Adagrad": of(torch.optim.Adagrad, lr=0.05),
    "Adadelta": of(torch.optim.Adadelta, lr=0.5),
    "ASGD": of(torch.optim.ASGD, lr=0.02),
    "Muon and AdamW": muon_and_adamw,
}


class Course:
    """A network, what happens to it, and what was kept of it for later."""

    def __init__(self, optimizer, seed):
        torch.manual_seed(seed)
        self.random = random.Random(seed)
        model = gpf.MLP(6, WIDTH, 3, depth=self.random.randint(1, 3))
        rules = gpf.Rules(
            grow_patience=2, grow_by=self.random.choice([1, 1, 2]), max_depth=5, grow_undoable=True,
            prune_patience=self.random.choice([0, 1, 2]),
            saliency=self.random.choice(["magnitude", "obd"]), saliency_threshold=0.05, freeze_patience=3,
            granularity=self.random.choice(["weight", "weight", "unit"]), freeze_delta=0.05, belief_increment=0.1,
        )  # fmt: skip
        self.net = gpf.attach(model, OPTIMIZERS[optimizer](model), rules=rules)
        self.follow()
        self.saved_states = None

    def follow(self):
        self.average = torch.optim.swa_utils.AveragedModel(self.net.model)
        self.net.followers.clear()
        self.net.follow(self.average)

    def loss(self, part=slice(None)):
        return nn.functional.mse_loss(self.net.model(X[part]), Y[part])

    def zero_grad(self):
        for optimizer in self.net.optimizers:
            optimizer.zero_grad()

    def step(self):
        for optimizer in self.net.optimizers:
            optimizer.step()

    def learns(self):
        return any(p.requires_grad for p in self.net.model.parameters())

    # Training practices

    def train(self):
        self.zero_grad()
        self.loss().backward()
        self.step()
        self.average.update_parameters(self.net.model)

    def clip(self):
        self.zero_grad()
        self.loss().backward()
        nn.utils.clip_grad_norm_(self.net.model.parameters(), 0.1)
        self.step()

    def accumulate(self):
        self.zero_grad()
        for part in range(self.random.randint(2, 4)):
            self.loss(slice(part * 16, part * 16 + 16)).backward()
            if self.random.random() < 0.3:
                self.step()

    def mixed_precision(self):
        self.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = self.loss()
        scaler = torch.amp.GradScaler("cpu")
        scaler.scale(loss).backward()
        optimizers = [
            o for o in self.net.optimizers if any(p.grad is not None for g in o.param_groups for p in g["params"])
        ]
        for optimizer in optimizers:
            scaler.step(optimizer)
        scaler.update()

    def swap_average(self):
        model = self.net.model
        backup = [p.detach().clone() for p in model.parameters()]
        for p, q in zip(model.parameters(), self.average.module.parameters(), strict=True):
            p.data.copy_(q)
        with torch.no_grad():
            assert model(X).isfinite().all()
        for p, q in zip(model.parameters(), backup, strict=True):
            p.data.copy_(q)

    def write_gradients(self):
        self.zero_grad()
        self.loss().backward()
        for parameter in self.net.model.parameters():
            if parameter.grad is not None:
                parameter.grad.data.add_(0.01)
        self.step()

    def write_values(self):
        for parameter in self.net.model.parameters():
            parameter.data.add_(0.01 * torch.randn_like(parameter))
        self.loss()

    def load_block(self):
        block = self.random.choice(self.net.layers).block
        state = {name: tensor + 0.01 for name, tensor in block.state_dict().items()}
        block.load_state_dict(state)
        self.loss()

    def keep_states(self):
        self.saved_states = self.structure(), [copy.deepcopy(o.state_dict()) for o in self.net.optimizers]

    def load_states(self):
        if self.saved_states is not None and self.saved_states[0] == self.structure():
            for optimizer, state in zip(self.net.optimizers, self.saved_states[1], strict=True):
                optimizer.load_state_dict(state)

    def structure(self):
        return self.net.depth, self.net.frozen

    # Events

    def grow(self):
        if self.net.depth < 6:
            before = self.net.model(X).detach()
            self.net.grow()
            torch.testing.assert_close(self.net.model(X).detach(), before, rtol=1e-5, atol=1e-5)

    def prune(self):
        masks = [None if w.pruned is None else w.pruned.clone() for layer in self.net.layers for w in layer.weights]
        keep = self.random.choice([None, 0.3, 0.6, 0.9])
        self.net.prune(keep=keep)
        for old, weight in zip(masks, (w for layer in self.net.layers for w in layer.weights), strict=True):
            assert old is None or bool((weight.pruned | ~old).all())

    def freeze(self):
        layer = self.random.randrange(self.net.depth)
        if not self.net.layers[layer].frozen:
            self.net.freeze(layer)

    def thaw(self):
        if self.net.frozen:
            self.net.thaw(self.random.choice(self.net.frozen))

    def undo(self):
        if self.net.before_growth is not None:
            self.net.undo()

    def epoch(self):
        self.net.end_epoch(self.random.choice([1.0, 0.5, 2.0]))

    def reload(self):
        with tempfile.TemporaryDirectory() as folder:
            self.net.save(folder)
            again = gpf.load(folder, lambda: gpf.MLP(6, WIDTH, 3))
        assert_same(snapshot(again), snapshot(self.net))
        self.net = again
        self.saved_states = None
        self.follow()

    def compact(self):
        torch.testing.assert_close(self.net.compact()(X), self.net.model(X), rtol=1e-4, atol=1e-4)


OPERATIONS = [name for name in vars(Course) if name not in ("__init__", "follow", "loss", "zero_grad", "step", "learns",
              "structure") and not name.startswith("__")]  # fmt: skip


def run(optimizer, operations, length):
    """So many operations, in courses of a length; returns how many there were of each."""
    counts = dict.fromkeys(OPERATIONS, 0)
    for start in range(0, operations, length):
        course = Course(optimizer, seed=start)
        for _ in range(length):
            name = course.random.choice(OPERATIONS)
            frozen = {i: copy.deepcopy(course.net.layers[i].block.state_dict()) for i in course.net.frozen}
            getattr(course, name)()
            counts[name] += 1
            assert_consistent(course.net)
            if name in ("train", "clip", "accumulate", "mixed_precision", "write_gradients"):
                for i, state in frozen.items():
                    assert_same(state, course.net.layers[i].block.state_dict())
            for layer, block in zip(course.net.layers, course.average.module.layers, strict=True):
                for weight in layer.masked:
                    assert not block.get_parameter(weight.name)[weight.pruned].any()
    return counts


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_nothing_breaks_in_a_random_course(optimizer):
    assert sum(run(optimizer, operations=60, length=30).values()) == 60


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_nothing_breaks_in_twenty_thousand_operations(optimizer):
    counts = run(optimizer, operations=1440, length=40)  # 20,160 with all fourteen
    assert sum(counts.values()) == 1440
    assert min(counts.values()) > 20
