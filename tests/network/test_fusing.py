"""Batch normalisation folded into the maps before it: the same outputs in evaluation mode."""

import pytest
import torch
from torch import nn

import gpf
from gpf.network.compaction.fusing import fuse_norms


def settled(model, *shape):
    """A model whose batch normalisation has seen data and has weights of its own, in evaluation mode."""
    torch.manual_seed(0)
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.affine:
            nn.init.normal_(module.weight)
            nn.init.normal_(module.bias)
    x = torch.randn(16, *shape)
    for _ in range(3):
        model(2.0 * x + 1.0)
    return model.eval(), x


def norms(model):
    return sum(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules())


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3), nn.BatchNorm1d(3)), (4,)),
        (nn.Sequential(nn.Conv1d(2, 3, 3, bias=False), nn.BatchNorm1d(3, affine=False), nn.GELU()), (2, 9)),
        (nn.Sequential(nn.Sequential(nn.Conv2d(3, 8, 3, groups=1), nn.BatchNorm2d(8)), nn.ReLU()), (3, 8, 8)),
        (nn.Sequential(nn.Conv3d(1, 2, 3), nn.BatchNorm3d(2)), (1, 5, 5, 5)),
    ],
)
def test_outputs_stay_the_same_and_no_norm_is_left(model, shape):
    model, x = settled(model, *shape)
    before = model(x)
    fuse_norms(model)
    assert norms(model) == 0
    torch.testing.assert_close(model(x), before, rtol=1e-4, atol=1e-5)


def test_what_cannot_be_folded_stays():
    shared = nn.Linear(4, 4)
    hooked = nn.Linear(4, 4)
    hooked.register_forward_hook(lambda module, given, out: out.relu())
    model = nn.Sequential(
        nn.Sequential(shared, nn.BatchNorm1d(4)),
        nn.Sequential(shared, nn.BatchNorm1d(4)),  # the same map before another norm
        nn.Sequential(hooked, nn.BatchNorm1d(4)),  # the norm sees what the hook makes of the outputs
        nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, track_running_stats=False)),  # normalises by the batch
        nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 4), nn.ReLU(), nn.BatchNorm1d(4)),  # no map right before it
    )
    model, x = settled(model, 4)
    before, count = model(x), norms(model)
    fuse_norms(model)
    assert norms(model) == count
    torch.testing.assert_close(model(x), before)


def test_compact_folds_norms_of_the_copy_only():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.Sequential(*(nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()) for _ in range(3))),
    )
    model, x = settled(model.train(), 3, 6, 6)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    net = gpf.attach(model, optimizer, stack="2", rules=gpf.Rules.fixed(granularity="unit"))
    net.prune(keep=0.5)
    small = net.compact(fuse=True)
    assert norms(model) == 4
    assert norms(small) == 0
    assert sum(p.numel() for p in small.parameters()) < sum(p.numel() for p in net.compact().parameters())
    torch.testing.assert_close(small(x), model(x), rtol=1e-4, atol=1e-5)
