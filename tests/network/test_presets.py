"""`rules="smaller"` chooses what to prune by looking at the model."""

import pytest
import torch
from compact_zoo import gpt2, made, outputs, size
from torch import nn

import gpf


class Unknown(nn.Module):
    """A block of which nobody knows how its units run."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


def mlp():
    return gpf.MLP(6, 20, 3, depth=3), "layers", torch.randn(16, 6)


def unknown():
    return nn.Sequential(nn.Sequential(Unknown(), Unknown()), nn.Linear(8, 2)), "0", torch.randn(16, 8)


def language_model():
    return made(gpt2)


@pytest.mark.parametrize(("make", "granularity"), [(mlp, "unit"), (language_model, "unit"), (unknown, "weight")])
def test_smaller_prunes_units_where_they_can_go_and_weights_elsewhere(make, granularity):
    torch.manual_seed(0)
    model, stack, inputs = make()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    net = gpf.attach(model, optimizer, stack=stack, rules="smaller", steps=20)
    assert net.rules.granularity == granularity
    assert net.rules.remove_units == (granularity == "unit")
    before, depth = size(model), net.depth
    for _ in range(20):
        loss = outputs(model, inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        net.end_epoch(loss)
    assert net.depth == depth
    assert net.frozen == ()
    if granularity == "unit":
        assert net.density > 0.95  # what is gone is gone; a channel may stay to speak for others
        assert size(model) < 0.8 * before
        assert {event.kind for event in net.events} == {"pruned", "removed"}
    else:
        assert net.density == pytest.approx(0.4, abs=0.01)
        assert size(model) == before
    assert net.events[0].reason.endswith("planned, at 15.0% of the training")
    assert net.events[-1].reason.endswith("planned, at 50.0% of the training")


def test_smaller_needs_steps_and_takes_changes():
    model = gpf.MLP(6, 20, 3)
    with pytest.raises(ValueError, match="^steps must be given"):
        gpf.attach(model, torch.optim.Adam(model.parameters()), rules="smaller")
    rules = gpf.Rules.smaller(prune_to=0.1)
    assert (rules.prune_to, rules.granularity, rules.remove_units, rules.grows) == (0.1, "unit", True, False)
    with pytest.raises(ValueError, match="^rules must be gpf.Rules or one of faster, smaller, got 'tiny'$"):
        gpf.attach(model, torch.optim.Adam(model.parameters()), rules="tiny")
