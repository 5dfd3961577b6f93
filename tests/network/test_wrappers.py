import json
import os
import socket

import pytest
import torch
from helpers import assert_consistent, data, train
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import gpf
from gpf.network import renew
from gpf.network.layer import Layer
from gpf.network.wrappers import share_activation

RULES = gpf.Rules(
    grow_patience=1, max_depth=3, grow_init="kaiming", prune_patience=1, saliency="obd", saliency_threshold=1e-5,
    belief_threshold=2.0, freeze_patience=4, freeze_delta=0.5, activation_threshold=0.3, weight_threshold=0.5,
)  # fmt: skip


KINDS = ("Adam", "SGD")


def worker(rank, port, folder):
    """One of two processes: own data, own random state, own losses."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.distributed.init_process_group("gloo", rank=rank, world_size=2)
    torch.set_num_threads(1)
    for kind in KINDS:
        result = trained(rank, kind, folder / f"{kind}-checkpoint")
        (folder / f"{kind}-{rank}.json").write_text(json.dumps(result))
    torch.distributed.destroy_process_group()


def trained(rank, kind, checkpoint):
    """The events, the weights and the beliefs of a network that has learnt on both processes."""
    torch.manual_seed(0)
    model = gpf.MLP(6, 8, 3)
    wrapped = DistributedDataParallel(model)
    optimizer = getattr(torch.optim, kind)(model.parameters(), lr=0.01)
    net = gpf.attach(wrapped, optimizer, rules=RULES)
    torch.manual_seed(rank)  # from here on, each draws its own numbers: new blocks must agree all the same
    x, y = data(seed=rank)
    for epoch in range(8):
        loss = train(wrapped, optimizer, x, y, steps=3)
        events = net.end_epoch(loss if epoch < 3 else 1.0 + rank)
        if any(event.structural for event in events):
            wrapped = net.renew(wrapped)
    assert_consistent(net)
    weights = torch.cat([p.detach().flatten() for p in model.parameters()]).tolist()
    beliefs = torch.cat([w.belief.flatten() for layer in net.layers for w in layer.weights]).tolist()
    net.save(checkpoint)
    again = gpf.load(checkpoint, lambda: gpf.MLP(6, 8, 3), distributed=True)
    for _ in range(2):
        again.end_epoch(float(rank))
    with pytest.raises(ValueError, match="^metric must be a finite number, got nan$"):
        again.end_epoch(float("nan") if rank == 0 else 1.0)  # no number on one process: both stop
    return [str(event) for event in again.events], weights, beliefs


@pytest.fixture(scope="module")
def of_two_processes(tmp_path_factory):
    """What both processes have come to, for each optimizer."""
    folder = tmp_path_factory.mktemp("processes")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(worker, (port, folder), nprocs=2)
    return {kind: [json.loads((folder / f"{kind}-{rank}.json").read_text()) for rank in (0, 1)] for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_all_processes_change_alike(kind, of_two_processes):
    first, second = of_two_processes[kind]
    assert first == second
    assert {"grown", "pruned", "frozen"} <= {event.split()[2] for event in first[0]}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_compiled_model_is_renewed_after_a_growth():
    model = gpf.MLP(6, 8, 3)
    compiled = torch.compile(model, backend="eager")
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    net = gpf.attach(compiled, optimizer, rules=gpf.Rules(grow_init="kaiming"))
    assert net.model is model
    x, y = data()
    train(compiled, optimizer, x, y)
    assert net.grow().structural
    compiled = net.renew(compiled)
    torch.testing.assert_close(compiled(x), model(x))
    old = net.layers[1].weights[0].parameter.detach().clone()
    train(compiled, optimizer, x, y)
    assert not torch.equal(net.layers[1].weights[0].parameter, old)


def test_a_bare_model_needs_no_renewal():
    model = gpf.MLP(6, 8, 3)
    assert renew(model) is model


@pytest.mark.parametrize("known", [True, False])
def test_all_processes_have_the_sum_of_all_activations(monkeypatch, known):
    layer = Layer(nn.Sequential(nn.Linear(3, 4), nn.ReLU()))
    layer.watch(set(), activations=True)
    if known:
        layer.activation.copy_(torch.tensor([1.0, 2.0, 3.0, 4.0]))
        layer.activation_count.fill_(5)
    others = torch.tensor([10.0, 20.0, 30.0, 40.0, 7.0], dtype=torch.float64)  # of another process
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda total: total.add_(others))
    share_activation(layer)
    assert layer.activation.tolist() == ([11.0, 22.0, 33.0, 44.0] if known else [10.0, 20.0, 30.0, 40.0])
    assert layer.activations == (12 if known else 7)
