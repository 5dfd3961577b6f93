"""A network that learns in C, and the same one that learns in Python, both fed with the same transitions."""

import numpy as np
import torch
from edge_networks import WORLDS

import gpf
from gpf.edge.learners import FROZEN, GROWN, PRUNED, THAWED
from gpf.edge.learning import Learning
from gpf.edge.policy import from_network, read_layers
from gpf.navigation.inputs import INPUTS as SIZES
from gpf.navigation.online import pruned_weights
from gpf.network import MLP, surgery
from gpf.plume.scenario import ACTIONS, Scenario

INPUTS, WIDTH = 16, 12
BITS = {"grown": GROWN, "pruned": PRUNED, "frozen": FROZEN, "thawed": THAWED}
RULES = {
    "warmup": 1, "grow_patience": 3, "grow_threshold": 0.01, "grow_cooldown": 1, "max_depth": 3, "mode": "max",
    "weight_threshold": 0.2, "belief_increment": 0.07, "prune_patience": 2, "belief_threshold": 0.5,
    "saliency_threshold": 0.2, "freeze_patience": 8, "freeze_delta": 0.012,
}  # fmt: skip
SETTINGS = {"learning_rate": 2e-3, "discount": 0.95, "gradient_clip": 5.0, "exploration": 0.1}


def make_net(rules, real=torch.float32, depth=1, pruned=0.0, learning_rate=SETTINGS["learning_rate"]):
    """A network that nobody trained, with some weights pruned if asked for."""
    torch.manual_seed(3)
    model = MLP(INPUTS, WIDTH, len(ACTIONS), depth)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.normal_(0.0, 0.1)
    model = model.to(real)
    net = gpf.attach(model, torch.optim.Adam(model.parameters(), lr=learning_rate), rules=gpf.Rules(**rules))
    if pruned:
        for layer in net.layers:
            weight = layer.weights[0]
            surgery.prune(layer, weight, weight.parameter.abs() < weight.parameter.abs().quantile(pruned))
    return net


def learning_from(net, observation="memory", **changes):
    """What is exported of it."""
    policy = from_network(net.model, Scenario.of("reference"), observation, {"name": "test"})
    settings = {**SETTINGS, **changes}
    return Learning(policy, tuple(read_layers(net.model)), pruned_weights(net), net.frozen, net.rules, **settings)


def learning_in(observation, **changes):
    """A network nobody trained, that learns in a world."""
    torch.manual_seed(1)
    model = MLP(SIZES[observation], 8, 6, 2)
    policy = from_network(model, WORLDS[observation], observation, {"scenario": observation})
    return Learning(policy, tuple(read_layers(model)), {}, (), gpf.Rules(), **{**SETTINGS, **changes})


def transitions(count, seed=0):
    """Inputs, actions, rewards, and the inputs that follow or None at an end."""
    random = np.random.default_rng(seed)
    inputs = random.normal(0.0, 1.0, (count + 1, INPUTS)).astype(np.float32)
    inputs[random.random(inputs.shape) < 0.2] = 0.0
    actions, rewards = random.integers(0, len(ACTIONS), count), random.normal(0.0, 1.0, count).astype(np.float32)
    ends = random.random(count) < 0.05
    return [(inputs[n], int(actions[n]), float(rewards[n]), None if ends[n] else inputs[n + 1]) for n in range(count)]


def bits(events):
    """Events as C returns them."""
    return sum({BITS[event.kind] for event in events})


class PlainLearner:
    """The online learner in NumPy, in the order of sums that C has, on the memory of a torch model and its Adam."""

    def __init__(self, net, settings):
        self.net, self.settings, self.powers = net, settings, {}

    def parts(self):
        """Weights, biases and masks of the layers, output layer last, and whether each learns."""
        layers = [block.linear for block in self.net.model.layers] + [self.net.model.head]
        masks = pruned_weights(self.net)
        return [(layer, masks.get(n), n not in self.net.frozen) for n, layer in enumerate(layers)]

    def forward(self, inputs):
        rows = [np.asarray(inputs, self.real)]
        parts = self.parts()
        for n, (layer, _, _) in enumerate(parts):
            out = layer.bias.detach().numpy().copy()
            for i, x in enumerate(rows[-1]):
                out += layer.weight.detach().numpy()[:, i] * x
            rows.append(out if n == len(parts) - 1 else np.maximum(out, 0))
        return rows

    @property
    def real(self):
        return self.net.model.head.weight.detach().numpy().dtype.type

    def expected(self, values):
        mean, random = 0.0, self.settings["exploration"]
        for value in values:
            mean += float(value)
        return (1.0 - random) * float(values.max()) + random * mean / len(values)

    def update(self, inputs, action, reward, following):
        real, target = self.real, float(np.float32(reward))
        if following is not None:
            target += self.settings["discount"] * self.expected(self.forward(following)[-1])
        rows, parts = self.forward(inputs), self.parts()
        deltas = [np.zeros_like(row) for row in rows]
        deltas[-1][action] = real(2) * real(float(rows[-1][action]) - target)
        for n in range(len(parts) - 1, 0, -1):
            weight = parts[n][0].weight.detach().numpy()
            for j in range(len(weight)):
                deltas[n] += deltas[n + 1][j] * weight[j]
            deltas[n] *= rows[n] > 0
        scale = self.scale(parts, rows, deltas)
        for n, (layer, mask, learns) in enumerate(parts):
            if learns:
                gradient = deltas[n + 1][:, None] * rows[n]
                if mask is not None:
                    gradient[mask] = 0
                self.descend(layer.weight, gradient, scale)
                self.descend(layer.bias, deltas[n + 1], scale)

    def scale(self, parts, rows, deltas):
        total = self.real(0)
        for n, (_, mask, learns) in enumerate(parts):
            if not learns:
                continue
            square, layer_total = deltas[n + 1] * deltas[n + 1], self.real(0)
            for one in square:
                layer_total += one
            for i, x in enumerate(rows[n]):
                heard = self.real(0)
                for j, one in enumerate(square):
                    heard += 0 if mask is not None and mask[j, i] else one
                layer_total += x * x * heard
            total += layer_total
        return self.real(min(1.0, self.settings["gradient_clip"] / (np.sqrt(float(total)) + 1e-6)))

    def descend(self, parameter, gradient, scale):
        real, optimizer = self.real, self.net.optimizer
        state = optimizer.state[parameter]
        if not state:
            zeros = torch.zeros_like(parameter)
            state.update(step=torch.tensor(0.0), exp_avg=zeros.clone(), exp_avg_sq=zeros.clone())
        state["step"] += 1
        one, two = self.powers.get(parameter, (1.0, 1.0))
        one, two = self.powers[parameter] = one * 0.9, two * 0.999
        first, second = state["exp_avg"].detach().numpy(), state["exp_avg_sq"].detach().numpy()
        step = real(self.settings["learning_rate"] / (1.0 - one))
        root, new, newer = real(1.0 / np.sqrt(1.0 - two)), real(1.0 - 0.9), real(1.0 - 0.999)
        g = gradient * scale
        first[...] = first + new * (g - first)
        second[...] = (real(1) - newer) * second + newer * g * g
        first[np.abs(first) <= real(1e-30)] = 0
        second[second <= real(1e-30)] = 0
        values = parameter.detach().numpy()
        values[...] = values - step * first / (np.sqrt(second) * root + real(1e-8))


def parameters(net):
    """Parameters, first moments and belief, by layer in the order of C; NaN where a weight is pruned."""
    found = {"values": [], "first": [], "belief": []}
    for n, layer in enumerate([*net.layers, None]):
        linear = net.model.head if layer is None else layer.block.linear
        for parameter in (linear.weight, linear.bias):
            state = {**net.optimizer.state.get(parameter, {})}
            if not state and n in net.stored:
                state = net.stored[n][f"linear.{'weight' if parameter is linear.weight else 'bias'}"][1]
            first = state.get("exp_avg", torch.zeros_like(parameter)).detach().numpy().copy()
            belief = np.zeros_like(first)
            if layer is not None and parameter is linear.weight:
                weight = layer.weights[0]
                belief = weight.belief.numpy().copy()
                if weight.pruned is not None:
                    belief[weight.pruned.numpy()] = first[weight.pruned.numpy()] = np.nan
            for name, array in (("values", parameter.detach().numpy()), ("first", first), ("belief", belief)):
                found[name].append(array.T.ravel())
    return {name: np.concatenate(arrays) for name, arrays in found.items()}


def parameters_of(learner, net):
    """The same from C's memory."""
    depth = int(learner["depth"])
    hidden = (INPUTS + 1) * WIDTH + (depth - 1) * (WIDTH + 1) * WIDTH
    head = (WIDTH + 1) * len(ACTIONS)
    found = {name: np.r_[learner[name][:hidden], learner[name][-head:]] for name in ("values", "first", "belief")}
    pruned = found["belief"] < 0
    found["belief"][pruned] = found["first"][pruned] = np.nan
    return found
