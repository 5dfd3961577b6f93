"""Networks that nobody trained, as they are exported, and what the kernels make of them."""

import numpy as np
import torch

from gpf.edge.policy import from_network
from gpf.navigation.acting import NetworkPolicy
from gpf.navigation.flat import FlatNetwork
from gpf.navigation.inputs import INPUTS
from gpf.network import MLP
from gpf.network.compaction.compact import compact
from gpf.plume.scenario import Scenario

WORLDS = {"memory": Scenario.of("reference"), "onehot": Scenario.of("paper")}


def make_model(observation, depth, kind, width=24, seed=0):
    """A network nobody trained: dense, normalised, or pruned and then compacted."""
    torch.manual_seed(seed)
    model = MLP(INPUTS[observation], width, 7, depth, layer_norm=kind == "normalised")
    random = np.random.default_rng(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "bias" in name:
                parameter.normal_(0.0, 0.1)
        if kind != "pruned":
            return model
        for block in model.layers:
            weight = block.linear.weight
            weight[torch.from_numpy(random.random(tuple(weight.shape)) < 0.7)] = 0.0
            weight[::4] = 0.0  # units without inputs
    return compact(model, "layers")


def make_exported(observation, depth, kind, **more):
    model = make_model(observation, depth, kind, **more)
    return from_network(model, WORLDS[observation], observation, {"scenario": 'a "test"??/ of \\ texts'}), model


def kernel_policy(model, observation, acting="greedy"):
    return NetworkPolicy(FlatNetwork(model), observation, acting, WORLDS[observation])


def greedy_actions(policy, flight):
    """What the kernels choose for the observations of an episode."""
    actions, chosen = np.zeros(1, np.int64), []
    policy.begin([0], WORLDS[policy.observation])
    for row in flight.sensors:
        raw = np.zeros((1, 8), np.float32)
        raw[0, :5] = row
        policy.act(raw, np.zeros(1, np.int64), actions)
        chosen.append(actions[0])
    return np.array(chosen)
