"""Two processes that share a model by FSDP2 come to what one process comes to with all of the data."""

import os
import socket
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest
import torch
from helpers import data
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Shard, distribute_tensor

import gpf
from gpf.network import sharding
from gpf.network.pruning import cheapest

RULES = gpf.Rules(
    grow_patience=None, grow_init="kaiming", grow_undoable=True, prune_patience=None, belief_threshold=0.015,
    activation_threshold=0.35, weight_threshold=0.5, freeze_patience=3, freeze_delta=0.02, freeze_fraction=0.6,
)  # fmt: skip


class Transformer(nn.Module):
    """Blocks of attention between two linear maps, on a sequence of length 2."""

    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Linear(3, 6), nn.Linear(12, 3)
        self.layers = nn.ModuleList([self.make_block(0)])

    def make_block(self, place):
        return nn.TransformerEncoderLayer(6, 2, 9, dropout=0.0, batch_first=True, norm_first=True)

    def forward(self, x):
        x = self.embed(x.view(-1, 2, 3))
        for layer in self.layers:
            x = layer(x)
        return self.head(x.flatten(1))


@dataclass(frozen=True)
class Case:
    """A model, its optimizer, how it is sharded, and by what it is pruned."""

    model: type[nn.Module]
    optimizer: str
    by_block: bool
    saliency: str
    init: str

    def build(self):
        return (gpf.MLP(6, 7, 3) if self.model is gpf.MLP else self.model()).double()

    def block(self, place):
        return self.build().make_block(place).double()

    def rules(self):
        limit = {"magnitude": 0.2, "obd": 2e-6}[self.saliency]
        return replace(RULES, saliency=self.saliency, saliency_threshold=limit, grow_init=self.init)


CASES = {
    "mlp": Case(gpf.MLP, "Adam", True, "magnitude", "kaiming"),
    "mlp under one root": Case(gpf.MLP, "SGD", False, "obd", "identity"),
    "transformer": Case(Transformer, "AdamW", True, "obd", "copy"),
}


def sharded(model, by_block):
    """The model, each block and then the whole sharded, or the whole only."""
    mesh = init_device_mesh("cpu", (2,))
    for block in model.layers if by_block else []:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def train(net, x, y, steps=3):
    """Training and an evaluation, after which the root of a sharded model holds unsharded parameters."""
    for _ in range(steps):
        net.optimizer.zero_grad()
        nn.functional.mse_loss(net.model(x), y).backward()
        net.optimizer.step()
    with torch.no_grad():
        net.model(x)


def course(case, prepare, x, y, folder):
    """All that can happen to a network: its state after each part of it, and the log."""
    torch.manual_seed(0)
    model = prepare(case.build())
    options = {"lr": 0.02} if case.optimizer != "SGD" else {"lr": 0.02, "momentum": 0.9}
    optimizer = getattr(torch.optim, case.optimizer)(model.parameters(), **options)
    net = gpf.attach(model, optimizer, block=case.block, rules=case.rules())
    rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
    torch.manual_seed(rank)  # new blocks must agree all the same
    states = {}
    train(net, x, y)
    net.grow()
    train(net, x, y)
    net.grow()
    train(net, x, y)
    net.undo()
    states["grown"] = whole(net)
    for _ in range(2):
        train(net, x, y)
        net.end_epoch(1.0)
    net.prune()
    train(net, x, y)
    states["pruned"] = whole(net)
    net.prune(keep=0.4)
    train(net, x, y)
    states["pruned to a share"] = whole(net)
    net.freeze(0)
    train(net, x, y)
    net.grow()
    train(net, x, y)
    states["frozen"] = whole(net)
    before = count_outputs(net)
    net.save(folder)
    again = gpf.load(folder, lambda: prepare(case.build()), block=case.block)
    states["outputs"] = before, count_outputs(net), count_outputs(again)
    if rank == 0:
        states["alone"] = f"{again.shape()} {again.density} {again.count_parameters()} {len(str(again).splitlines())}"
    states["loaded"] = whole(again)
    states["resumed"] = resumed(again, x, y)
    states["events"] = [str(event) for event in again.events]
    return states


def resumed(net, x, y):
    """What becomes of a network with a frozen layer."""
    net.thaw(0)
    for _ in range(5):
        train(net, x, y)
        net.end_epoch(1.0)
    assert_silent(net)
    return whole(net)


def count_outputs(net):
    """Number of outputs of which the activations of each layer are the sum, over all processes."""
    counts = torch.tensor([layer.activations for layer in net.layers])
    if torch.distributed.is_initialized():
        torch.distributed.all_reduce(counts)
    return counts.tolist()


def assert_silent(net):
    """Pruned weights, their gradients and their moments are zero in this process's shard."""
    for weight in (weight for layer in net.layers for weight in layer.weights if weight.pruned is not None):
        state = net.optimizer.state.get(weight.parameter, {})
        for values in (weight.parameter, weight.parameter.grad, *state.values()):
            if torch.is_tensor(values) and values.dim() >= 2:
                assert not sharding.local(values)[weight.pruned].any()


def whole(net):
    """Weights, masks, beliefs and moments of a network, and its shape, as one process sees them."""
    sharding.settle(net.model)
    state = {f"model/{name}": sharding.full(p).clone() for name, p in net.model.named_parameters()}
    for name, p in net.model.named_parameters():
        for key, value in sorted(net.optimizer.state.get(p, {}).items()):
            state[f"optimizer/{name}/{key}"] = sharding.full(value).clone()
    for i, layer in enumerate(net.layers):
        for weight in layer.weights:
            for key in ("belief", "pruned", "previous", "squares"):
                if (value := getattr(weight, key)) is not None:
                    value = sharding.full(sharding.as_shard_of(value, weight.parameter)).clone()
                    state[f"layer/{i}/{weight.name}/{key}"] = value
    shape = net.shape()
    numbers = [shape.depth, shape.parameters, shape.weights, shape.pruned, shape.pruned_units, *shape.frozen]
    return {**state, "shape": torch.tensor(numbers)}


def worker(rank, port, folder):
    """One of two processes: half of the data, own random state."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.distributed.init_process_group("gloo", rank=rank, world_size=2, timeout=timedelta(seconds=60))
    torch.set_num_threads(1)
    x, y = (half.double().chunk(2)[rank] for half in data())
    for name, case in CASES.items():

        def prepare(model, case=case):
            return sharded(model, case.by_block)

        states = course(case, prepare, x, y, folder / f"{name}-of-two")
        net = gpf.load(folder / f"{name}-of-one", lambda p=prepare, c=case: p(c.build()), block=case.block)
        states["resumed from one"] = resumed(net, x, y)
        torch.save(states, folder / f"{name}-{rank}.pt")
    torch.save(of_shards(), folder / f"shards-{rank}.pt")
    torch.distributed.destroy_process_group()


SHAPES = ((5, 4), (1, 6), (7, 2, 3))


def costs_and_masks():
    """Some tensors in which most costs are equal to others, and masks of their shapes, with whole rows and columns."""
    generator = torch.Generator().manual_seed(0)
    costs = [torch.randint(-3, 4, shape, generator=generator).double() for shape in SHAPES]
    masks = [cost < 2 for cost in costs]
    masks[0][3], masks[2][:, 1] = True, True
    return costs, masks


def of_shards():
    """What is found out of these tensors, the first split by rows, the last by columns, the other not at all."""
    mesh = init_device_mesh("cpu", (2,))
    costs, masks = costs_and_masks()
    split = [distribute_tensor(costs[0], mesh, [Shard(0)]), costs[1], distribute_tensor(costs[2], mesh, [Shard(1)])]
    parts = [sharding.share_of(cost, like) for cost, like in zip(costs, split, strict=True)]
    result = {}
    gone = [sharding.share_of(mask, like) for mask, like in zip(masks, split, strict=True)]
    for count in COUNTS:
        for name, before in ((f"{count}", [None] * 3), (f"{count} with masks", gone)):
            chosen = sharding.cheapest_of_all(parts, before, split, count)
            result[name] = [sharding.full(sharding.as_shard_of(*pair)) for pair in zip(chosen, split, strict=True)]
    kept = [sharding.kept(sharding.share_of(mask, like), like) for mask, like in zip(masks, split, strict=True)]
    result["kept"] = [(each.total, each.by_row, each.by_column) for each in kept]
    return result


@pytest.fixture(scope="module")
def courses(tmp_path_factory):
    """For each case, what one process has come to, and each of two."""
    folder = tmp_path_factory.mktemp("processes")
    x, y = (whole.double() for whole in data())
    alone = {name: course(case, nn.Identity().forward, x, y, folder / f"{name}-of-one") for name, case in CASES.items()}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(worker, (port, folder), nprocs=2)
    both = {name: [torch.load(folder / f"{name}-{rank}.pt") for rank in (0, 1)] for name in CASES}
    return folder, alone, both


PARTS = ("grown", "pruned", "pruned to a share", "frozen", "loaded", "resumed")


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("name", CASES)
def test_two_processes_come_to_what_one_comes_to(courses, name, part):
    _, alone, both = courses
    for states in both[name]:
        torch.testing.assert_close(states[part], alone[name][part], rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_all_processes_log_the_events_of_one(courses, name):
    _, alone, both = courses
    assert both[name][0]["events"] == both[name][1]["events"] == alone[name]["events"]
    assert {event.split()[2] for event in alone[name]["events"]} == {"grown", "undone", "pruned", "frozen", "thawed"}


@pytest.mark.parametrize("name", CASES)
def test_one_process_alone_can_describe_the_network(courses, name):
    _, alone, both = courses
    assert both[name][0]["alone"] == alone[name]["alone"]


@pytest.mark.parametrize("name", CASES)
def test_a_checkpoint_restores_all_bits(courses, name):
    _, _, both = courses
    for states in both[name]:
        torch.testing.assert_close(states["loaded"], states["frozen"], rtol=0, atol=0)


@pytest.mark.parametrize("name", CASES)
def test_activations_of_an_unfinished_epoch_are_counted_once_after_a_save_and_a_load(courses, name):
    _, alone, both = courses
    counts = [2 * count for count in alone[name]["outputs"][0]]
    assert any(counts)
    for states in both[name]:
        assert states["outputs"] == (counts, counts, counts)


@pytest.mark.parametrize("name", CASES)
def test_a_checkpoint_of_two_processes_goes_on_in_one_and_the_other_way_round(courses, name):
    folder, alone, both = courses
    case = CASES[name]
    net = gpf.load(folder / f"{name}-of-two", case.build, block=case.block)
    torch.testing.assert_close(whole(net), both[name][0]["frozen"], rtol=0, atol=0)
    x, y = (values.double() for values in data())
    torch.testing.assert_close(resumed(net, x, y), alone[name]["resumed"], rtol=1e-7, atol=1e-9)
    for states in both[name]:
        torch.testing.assert_close(states["resumed from one"], alone[name]["resumed"], rtol=1e-7, atol=1e-9)


COUNTS = (0, 1, 9, 25, 40, 67, 68)


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("with_masks", [False, True])
@pytest.mark.parametrize("count", COUNTS)
def test_the_cheapest_of_all_shards_are_those_of_the_whole(courses, rank, with_masks, count):
    costs, masks = costs_and_masks()
    gone = masks if with_masks else None
    found = torch.load(courses[0] / f"shards-{rank}.pt")[f"{count} with masks" if with_masks else f"{count}"]
    assert sum(int(mask.sum()) for mask in found) == count
    ranks = [cost.abs() for cost in costs]
    if with_masks:
        ranks = [cost.masked_fill(mask, -1.0) for cost, mask in zip(ranks, masks, strict=True)]
    worst = max([cost[mask].max() for cost, mask in zip(ranks, found, strict=True) if mask.any()], default=-2.0)
    assert all((cost[~mask] >= worst).all() for cost, mask in zip(ranks, found, strict=True))
    whole_then_rows = [torch.equal(*pair) for pair in zip(found, cheapest(costs, count, gone), strict=True)]
    assert all(whole_then_rows[:2])  # of equals, the first; by columns, those of the first shard


@pytest.mark.parametrize("rank", [0, 1])
def test_what_is_kept_is_counted_over_all_shards(courses, rank):
    _, masks = costs_and_masks()
    for mask, (count, by_row, by_column) in zip(
        masks, torch.load(courses[0] / f"shards-{rank}.pt")["kept"], strict=True
    ):
        left = ~mask
        assert count == left.sum()
        assert torch.equal(by_row, left.flatten(1).sum(1))
        assert torch.equal(by_column, left.transpose(0, 1).flatten(1).sum(1))


# One process that shards over itself alone


@pytest.fixture
def mesh():
    torch.distributed.init_process_group("gloo", rank=0, world_size=1, store=torch.distributed.HashStore())
    yield init_device_mesh("cpu", (1,))
    torch.distributed.destroy_process_group()


def attached(model):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    return gpf.attach(model, optimizer, rules=gpf.Rules(grow_init="kaiming", grow_undoable=True))


def forward_and_backward(net):
    x, y = data()
    nn.functional.mse_loss(net.model(x).float(), y).backward()


def state_of(module):
    return module._get_fsdp_state()


POLICY = MixedPrecisionPolicy(param_dtype=torch.bfloat16, output_dtype=torch.float32)


@pytest.mark.parametrize("reshard", [True, False, None])
def test_a_new_block_is_sharded_with_the_settings_of_the_last(mesh, reshard):
    model = gpf.MLP(6, 8, 3, depth=2)
    first, last = model.layers
    fully_shard(first.linear, mesh=mesh)
    fully_shard(first, mesh=mesh)
    fully_shard(last.linear, mesh=mesh, mp_policy=POLICY, shard_placement_fn=lambda p: Shard(p.dim() - 1))
    fully_shard(last, mesh=mesh, reshard_after_forward=reshard)
    fully_shard(model, mesh=mesh)
    last.linear.set_gradient_divide_factor(3.0)
    last.linear.set_reshard_after_forward(reshard is not False)
    net = attached(model)
    forward_and_backward(net)
    net.grow()
    old, new = state_of(last.linear)._fsdp_param_groups[0], state_of(model.layers[2].linear)._fsdp_param_groups[0]
    assert model.layers[2].linear.weight.placements == last.linear.weight.placements == (Shard(1),)
    assert new.mp_policy == old.mp_policy == POLICY
    assert new.gradient_divide_factor == 3.0
    assert new.mesh_info.mesh is mesh
    assert (new.post_forward_mesh_info is None) == (old.post_forward_mesh_info is None) == (reshard is False)
    assert isinstance(model.layers[2], FSDPModule)
    forward_and_backward(net)
    assert model.layers[2].linear.weight.grad is not None


def test_the_root_knows_all_units_after_a_growth_and_after_undoing_it(mesh):
    net = attached(sharded_over(mesh, gpf.MLP(6, 8, 3)))
    forward_and_backward(net)
    net.grow()
    states = [state_of(unit) for unit in net.model.modules() if isinstance(unit, FSDPModule)]
    assert len(states) == 3
    assert state_of(net.model)._state_ctx.all_states == states
    assert [state._is_root for state in states] == [True, False, False]
    assert all(state._state_ctx is states[0]._state_ctx and state._comm_ctx is states[0]._comm_ctx for state in states)
    net.undo()
    assert state_of(net.model)._state_ctx.all_states == states[:2]


def sharded_over(mesh, model):
    for block in model.layers:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def test_parameters_that_are_not_sharded_in_the_last_block_are_not_in_a_new_one(mesh):
    model = gpf.MLP(6, 8, 3, depth=2)
    for block in model.layers:
        fully_shard(block, mesh=mesh, ignored_params={block.linear.bias})
    net = attached(model)
    forward_and_backward(net)
    net.grow()
    assert [sharding.is_shard(p) for p in model.layers[2].parameters()] == [True, False]


@pytest.mark.parametrize("by", ["thawing", "undoing"])
def test_a_layer_that_was_frozen_before_the_first_forward_gets_gradients_of_its_own_dtype(mesh, by):
    model, policy = gpf.MLP(6, 8, 3, depth=2), MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    for block in model.layers:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    net = attached(fully_shard(model, mesh=mesh, mp_policy=policy))
    net.grow()
    net.freeze(0)
    forward_and_backward(net)
    if by == "thawing":
        net.thaw(0)
    else:
        net.undo()
    forward_and_backward(net)
    assert net.layers[0].weights[0].parameter.grad.dtype == torch.float32


def test_a_model_can_be_evaluated_in_part_right_after_a_growth(mesh):
    net = attached(sharded_over(mesh, gpf.MLP(6, 8, 3)))
    forward_and_backward(net)
    net.grow()
    with torch.no_grad():
        net.model.layers[0](data()[0])
    forward_and_backward(net)


def test_a_model_that_is_sharded_after_attach_is_refused(mesh):
    model = gpf.MLP(6, 8, 3)
    net = attached(model)
    sharded_over(mesh, model)
    with pytest.raises(ValueError, match="^model must be sharded before gpf is attached to it, got one"):
        net.end_epoch(1.0)


def test_a_model_that_is_split_in_another_way_is_refused(mesh):
    model = gpf.MLP(6, 8, 3)
    model.head.weight = nn.Parameter(distribute_tensor(model.head.weight.detach(), mesh, [Shard(1)]))
    with pytest.raises(ValueError, match=r"^model must be sharded with .*fully_shard alone, got head.weight with"):
        attached(model)


@pytest.mark.filterwarnings("ignore:FSDP is switching to use `NO_SHARD`")  # as there is one process
def test_flat_parameters_are_refused(mesh):
    model = gpf.MLP(6, 8, 3)
    model.head = FullyShardedDataParallel(model.head, device_id=torch.device("cpu"))
    with pytest.raises(ValueError, match="got FullyShardedDataParallel, whose flat parameters cannot change$"):
        attached(model)


def test_a_sharded_model_cannot_be_compacted(mesh):
    net = attached(sharded_over(mesh, gpf.MLP(6, 8, 3)))
    with pytest.raises(ValueError, match="^a sharded model cannot be compacted; "):
        net.compact()
