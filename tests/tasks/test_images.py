"""CIFAR-10 at equal steps and FLOPs: the residual network, its FLOPs, and runs that grow and shrink."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from gpf.network import Rules, attach
from gpf.runs.folder import Outcome
from gpf.tasks.images import MLP_TASK, RESIDUAL, Config, make_model

pytestmark = pytest.mark.usefixtures("one_torch_thread")


@pytest.mark.parametrize("task", [RESIDUAL, MLP_TASK])
@pytest.mark.parametrize("layers", [1, 3])
def test_flops_of_a_forward_pass_are_those_that_torch_counts(task, layers):
    config = task.of({"kind": "fixed", "layers": layers})
    below, block, above = config.layer_weights()
    with FlopCounterMode(display=False) as counter:
        make_model(config)(torch.zeros(5, 3072))
    assert counter.get_total_flops() == 5 * 2 * (below + layers * block + above)


def test_the_residual_network_has_the_size_that_the_page_states():
    assert 300_000 < sum(p.numel() for p in make_model(RESIDUAL.of({})).parameters()) < 1_000_000


def test_a_grown_block_starts_as_the_identity():
    torch.manual_seed(0)
    model = make_model(Config(kind="fixed", layers=1, width=8)).eval()
    images = torch.randn(3, 3072)
    before = model(images)
    net = attach(model, torch.optim.SGD(model.parameters(), 0.1), rules=Rules(grow_init="identity"))
    net.grow()
    assert len(model.layers) == 2
    torch.testing.assert_close(model.eval()(images), before)


@pytest.mark.usefixtures("with_data")
@pytest.mark.parametrize("task", [RESIDUAL, MLP_TASK])
def test_runs_grow_shrink_and_count_their_flops(task, tmp_path):
    small = {"width": 8, "steps": 10, "round_steps": 1, "batch": 16, "images": 200}
    runs = {kind: task.of({**small, "kind": kind, "layers": 4}) for kind in ("fixed", "faster", "smaller")}
    results = {kind: task.train(task.create(tmp_path / kind, config)) for kind, config in runs.items()}
    for kind in ("fixed", "faster"):
        assert results[kind]["flops"] == pytest.approx(runs[kind].planned_flops())
    assert Outcome.read(tmp_path / "faster").lines[0]["depth"] == 2
    assert results["faster"]["depth"] == 4
    assert results["smaller"]["flops"] < results["fixed"]["flops"]
    assert results["smaller"]["inference_flops"] < results["fixed"]["inference_flops"]
    assert 0.0 <= results["fixed"]["test_accuracy"] <= 1.0
