"""Small models, data and checks that the network's tests share."""

import dataclasses

import torch
from torch import nn

import gpf

OPTIMIZERS = {
    "sgd": lambda p, **o: torch.optim.SGD(p, lr=0.05, **o),
    "momentum": lambda p, **o: torch.optim.SGD(p, lr=0.02, momentum=0.9, weight_decay=0.01, **o),
    "nesterov": lambda p, **o: torch.optim.SGD(p, lr=0.02, momentum=0.9, nesterov=True, weight_decay=0.01, **o),
    "adam": lambda p, **o: torch.optim.Adam(p, lr=0.01, weight_decay=0.01, **o),
    "amsgrad": lambda p, **o: torch.optim.Adam(p, lr=0.01, amsgrad=True, **o),
    "adamw": lambda p, **o: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1, **o),
    "rmsprop": lambda p, **o: torch.optim.RMSprop(p, lr=0.005, momentum=0.5, centered=True, weight_decay=0.01, **o),
}
DIVISORS = {"exp_avg_sq", "max_exp_avg_sq", "square_avg"}
WITH_DIVISORS = {torch.optim.Adam, torch.optim.AdamW, torch.optim.NAdam, torch.optim.RAdam, torch.optim.RMSprop}


def data(inputs=6, outputs=3, count=64, seed=0):
    """A smooth function of normal inputs."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, inputs, generator=generator)
    return x, torch.tanh(x[:, :outputs] * x[:, -outputs:])


def train(model, optimizer, x, y, steps=5):
    """Plain training, which knows nothing of gpf; returns the last loss."""
    for _ in range(steps):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def small(optimizer="adam", width=8, depth=1, rules=None, **options):
    """An MLP with gpf attached: the network and its data."""
    model = gpf.MLP(6, width, 3, depth)
    made = OPTIMIZERS[optimizer](model.parameters(), **options)
    return gpf.attach(model, made, rules=rules or gpf.Rules()), *data()


def snapshot(net):
    """Copies of everything that training depends on, by name."""
    names = {id(p): name for name, p in net.model.named_parameters()}
    state = {f"model/{name}": tensor.clone() for name, tensor in net.model.state_dict().items()}
    for parameter, values in net.optimizers.states():
        for key, value in values.items():
            state[f"optimizer/{names[id(parameter)]}/{key}"] = value.clone() if torch.is_tensor(value) else value
    state["groups"] = [[names[id(p)] for p in group["params"]] for group in net.optimizers.groups]
    for i, layer in enumerate(net.layers):
        state[f"layer/{i}"] = (layer.frozen, layer.still, layer.gradients, layer.activations)
        for weight in layer.weights:
            for key in ("belief", "pruned", "previous", "squares", "dense"):
                value = getattr(weight, key)
                state[f"layer/{i}/{weight.name}/{key}"] = None if value is None else value.clone()
        state[f"layer/{i}/activation"] = None if layer.activation is None else layer.activation.clone()
    for i, parameters in net.stored.items():
        for name, (group, values) in parameters.items():
            state[f"stored/{i}/{name}"] = group
            for key, value in values.items():
                state[f"stored/{i}/{name}/{key}"] = value.clone() if torch.is_tensor(value) else value
    if net.before_growth is not None:
        state |= {f"undo/{name}": tensor.clone() for name, tensor in net.before_growth[0].items()}
    state["requires_grad"] = [name for name, p in net.model.named_parameters() if p.requires_grad]
    state["counters"] = (dataclasses.asdict(net.plateau), tuple(net.prunes_due))
    return state


def assert_same(one, other):
    """Equal bit for bit."""
    assert one.keys() == other.keys()
    for name, value in one.items():
        if torch.is_tensor(value):
            assert torch.equal(value, other[name]), name
        else:
            assert value == other[name], name


def assert_consistent(net):
    """What must always hold: memberships, masks, frozen layers, and the log's last word."""
    members = [p for group in net.optimizers.groups for p in group["params"]]
    assert len({id(p) for p in members}) == len(members)
    trainable = {id(p) for p in net.model.parameters() if p.requires_grad}
    assert trainable == {id(p) for p in members}
    assert {id(p) for p, _ in net.optimizers.states()} <= trainable
    for layer in net.layers:
        assert all(p.requires_grad != layer.frozen for p in layer.parameters())
        for weight in layer.weights:
            if weight.pruned is None:
                continue
            state = net.optimizers.state_of(weight.parameter)
            for name, values in {"value": weight.parameter, "gradient": weight.parameter.grad, **state}.items():
                if torch.is_tensor(values) and values.shape == weight.parameter.shape:
                    if name in DIVISORS and type(net.optimizers.holder(weight.parameter)) in WITH_DIVISORS:
                        assert (values[weight.pruned] >= 0).all()  # it only divides
                    else:
                        assert not values[weight.pruned].any(), name
    if net.events:
        assert net.events[-1].after == net.shape()
    assert len(net.layers) == len(net.model.get_submodule(net.stack))
