"""Frozen leading layers run once for each row of a data set, and nothing that is learned changes."""

import copy

import pytest
import torch
from torch import nn

import gpf


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Language(nn.Module):
    """GPT-like: embeddings, a ModuleList, a head."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.blocks = nn.ModuleList(Block() for _ in range(4))
        self.head = nn.Linear(8, 11)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def mlp():
    return gpf.MLP(6, 8, 11, depth=4), "layers", torch.randn(20, 6)


def sequential():
    layers = [nn.Sequential(nn.Linear(6 if i == 0 else 8, 8), nn.Tanh()) for i in range(4)]
    return nn.Sequential(nn.Sequential(*layers), nn.Linear(8, 11)), "0", torch.randn(20, 6)


def language():
    model = Language()
    model.embedding.requires_grad_(False)
    return model, "blocks", torch.randint(0, 11, (20, 5))


MODELS = pytest.mark.parametrize("make", [mlp, sequential, language])


def attached(make, frozen=2, rules=None):
    torch.manual_seed(0)
    model, stack, x = make()
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.01)
    net = gpf.attach(model, optimizer, stack=stack, rules=rules or gpf.Rules.fixed())
    for layer in range(frozen):
        net.freeze(layer)
    return net, x


def counted(net):
    """How often each block's own function has run."""
    runs = [0] * net.depth

    def counting(place, usual):
        def forward(*inputs):
            runs[place] += 1
            return usual(*inputs)

        return forward

    for place, layer in enumerate(net.layers):
        layer.block.forward = counting(place, layer.block.forward)
    return runs


def step(net, x, rows, cache=None):
    net.optimizer.zero_grad()
    y = torch.arange(20)[rows] % 11
    if cache is None:
        out = net.model(x[rows])
    else:
        with cache.rows(rows):
            out = net.model(x[rows])
    out = out if out.dim() == 2 else out.mean(1)
    nn.functional.cross_entropy(out, y).backward()
    gradients = [None if p.grad is None else p.grad.clone() for p in net.model.parameters()]
    net.optimizer.step()
    return out.detach(), gradients


@MODELS
def test_outputs_and_gradients_are_the_same_and_frozen_blocks_run_once(make):
    (plain, x), (net, _) = attached(make), attached(make)
    cache, runs = net.cache_frozen(), counted(net)
    for _ in range(3):
        for rows in torch.arange(20).split(5):
            out, gradients = step(net, x, rows, cache)
            expected, theirs = step(plain, x, rows)
            assert torch.equal(out, expected)
            assert all(a is b is None or torch.equal(a, b) for a, b in zip(gradients, theirs, strict=True))
    assert runs == [4, 4, 12, 12]  # all rows were seen in the first four batches
    assert len(cache) == 20


@MODELS
def test_rows_may_come_in_any_order(make):
    """Batches of other rows round differently, so this holds but for rounding."""
    (plain, x), (net, _) = attached(make), attached(make)
    cache, order = net.cache_frozen(), torch.Generator().manual_seed(1)
    for _ in range(3):
        for rows in torch.randperm(20, generator=order).split(6):
            torch.testing.assert_close(step(net, x, rows, cache)[0], step(plain, x, rows)[0], rtol=1e-3, atol=1e-4)


@MODELS
def test_nothing_is_computed_backwards_for_frozen_leading_layers(make):
    net, x = attached(make)
    entering = []
    net.layers[2].block.register_forward_pre_hook(lambda block, inputs: entering.append(inputs[0]))
    step(net, x, torch.arange(5))
    assert entering[0].grad_fn is None
    assert not entering[0].requires_grad


@pytest.mark.parametrize("change", ["freeze", "thaw", "load", "grow", "prune", "remove"])
def test_the_cache_is_dropped_when_leading_layers_change(change):
    net, x = attached(mlp, rules=gpf.Rules(granularity="unit"))
    cache = net.cache_frozen()
    rows = torch.arange(20)
    step(net, x, rows, cache)
    assert len(cache) == 20
    if change == "freeze":
        net.freeze(2)
    elif change == "thaw":
        net.thaw(1)
    elif change == "load":
        other = attached(mlp)[0].model
        with torch.no_grad():
            other.layers[0].linear.weight.mul_(2.0)
        net.model.load_state_dict(other.state_dict())
    elif change == "grow":
        net.grow()
        net.freeze(2)
    else:
        net.thaw(1)
        net.prune(keep=0.3)
        if change == "remove":
            net.remove_units()
        net.freeze(1)
    net.model.eval()
    expected = net.model(x)
    with cache.rows(rows):
        assert torch.equal(net.model(x), expected)
    with cache.rows(rows):
        assert torch.equal(net.model(x), expected)


def test_what_learns_before_the_stack_is_never_taken_from_the_cache():
    torch.manual_seed(0)
    model, stack, x = language()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    net = gpf.attach(model, optimizer, stack=stack, rules=gpf.Rules.fixed())
    net.freeze(0)
    cache, rows = net.cache_frozen(), torch.arange(20)
    step(net, x, rows, cache)
    assert len(cache) == 20
    model.embedding.requires_grad_(True)
    runs = counted(net)
    for _ in range(2):
        step(net, x, rows, cache)
    assert runs[0] == 2
    assert len(cache) == 0


def test_active_dropout_in_leading_layers_is_not_cached():
    layers = [nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5)) for _ in range(2)]
    model = nn.Sequential(nn.Sequential(*layers), nn.Linear(6, 11))
    net = gpf.attach(model, torch.optim.Adam(model.parameters()), stack="0", rules=gpf.Rules.fixed())
    net.freeze(0)
    cache, x, rows = net.cache_frozen(), torch.randn(20, 6), torch.arange(20)
    step(net, x, rows, cache)
    assert len(cache) == 0
    model.eval()
    step(net, x, rows, cache)
    assert len(cache) == 20


def test_over_the_limit_rows_are_computed_as_usual():
    net, x = attached(mlp)
    cache, runs = net.cache_frozen(limit=8 * 4 * 10), counted(net)  # ten rows of eight numbers of four bytes
    for _ in range(2):
        for rows in torch.arange(20).split(5):
            step(net, x, rows, cache)
    assert len(cache) == 10
    assert runs[:2] == [6, 6]  # four batches, and then the two that are not kept


def test_nothing_frozen_nothing_kept_and_the_blocks_are_as_they_were():
    net, x = attached(mlp, frozen=0)
    cache, rows = net.cache_frozen(), torch.arange(20)
    step(net, x, rows, cache)
    assert len(cache) == 0
    net.freeze(0)
    step(net, x, rows, cache)
    with pytest.raises(RuntimeError, match="mine"), cache.rows(rows):
        raise RuntimeError("mine")
    assert not any("forward" in vars(layer.block) for layer in net.layers)
    copy.deepcopy(net.model)


def test_wrong_rows_and_limits_are_refused():
    net, x = attached(mlp)
    wrong = r"^rows must name each row of the batch, got 3 for activations of \[20, 8\]$"
    with pytest.raises(ValueError, match=wrong), net.cache_frozen().rows([1, 2, 3]):
        net.model(x)
    with pytest.raises(ValueError, match="^limit must be a whole number of bytes of at least 0, got -1$"):
        net.cache_frozen(limit=-1)
