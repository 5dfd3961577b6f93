"""The network in flat memory is the torch network."""

import numpy as np
import pytest
import torch

import gpf
from gpf.navigation.acting import output_table
from gpf.navigation.flat import FlatNetwork, forward
from gpf.plume.tokens import STATES, onehot

pytestmark = pytest.mark.usefixtures("one_torch_thread")


def outputs_of(network, inputs):
    activations = network.activations()[0]
    out = np.zeros((len(inputs), network.layers[-1]["outputs"]), np.float32)
    for seen, answer in zip(inputs.numpy(), out, strict=True):
        activations[0, : len(seen)] = seen
        forward(network.layers, network.values, activations)
        answer[:] = activations[-1, : len(answer)]
    return out


@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize("layer_norm", [False, True])
def test_outputs_equal_torchs(depth, layer_norm):
    model = gpf.MLP(20, 32, 7, depth, layer_norm)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)  # biases, scales and shifts too
    inputs = torch.randn(50, 20)
    wanted = model(inputs).detach()
    network = FlatNetwork(model)
    np.testing.assert_allclose(outputs_of(network, inputs), wanted, atol=2e-5)
    torch.testing.assert_close(model(inputs), wanted)  # moving the parameters has changed nothing


@pytest.mark.parametrize("fused", [False, True])
def test_what_torch_learns_is_in_flat_memory_at_once(fused):
    model = gpf.MLP(20, 16, 7, 2, layer_norm=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, fused=fused)
    network = FlatNetwork(model)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(8, 20)).square().sum().backward()
        optimizer.step()
    flat = torch.cat([p.detach().flatten() for p in model.parameters()])
    assert torch.equal(torch.from_numpy(np.sort(network.values)), flat.sort().values)
    inputs = torch.randn(5, 20)
    np.testing.assert_allclose(outputs_of(network, inputs), model(inputs).detach(), atol=2e-5)


def test_the_table_holds_the_outputs_for_all_observations():
    model = gpf.MLP(22, 16, 6, 2)
    tokens = np.array([(left, right, wind) for left in range(7) for right in range(7) for wind in range(8)])
    inputs = np.zeros((STATES, 22), np.float32)
    onehot(tokens, inputs)
    table = output_table(FlatNetwork(model), "onehot")
    np.testing.assert_allclose(table, model(torch.from_numpy(inputs)).detach(), atol=1e-5)


def test_other_values_do_not_reach_torch():
    model = gpf.MLP(22, 16, 6)
    network = FlatNetwork(model)
    other = network.with_values(np.zeros_like(network.values))
    assert not output_table(other, "onehot").any()
    assert output_table(network, "onehot").any()


def test_networks_of_other_layers_are_refused():
    model = gpf.MLP(22, 16, 6)
    model.layers.append(torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Tanh()))
    with pytest.raises(ValueError, match="^the model's hidden layers must be those of gpf.MLP: Linear"):
        FlatNetwork(model)
