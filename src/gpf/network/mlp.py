"""The paper's network: fully connected, ReLU, with a stack of hidden layers that can grow."""

from collections import OrderedDict

from torch import Tensor, nn


class MLP(nn.Module):
    """inputs - width x depth - outputs, with ReLU between; its stack is `layers`.

    Args:
        inputs: Number of inputs.
        width: Units of each hidden layer.
        outputs: Number of outputs.
        depth: Number of hidden layers to start with.
        layer_norm: Normalise the first hidden layer. Grown layers are not normalised: they could not be the identity.
    """

    def __init__(self, inputs: int, width: int, outputs: int, depth: int = 1, layer_norm: bool = False) -> None:
        super().__init__()
        self.width = width
        self.layers: nn.ModuleList = nn.ModuleList([hidden_layer(inputs, width, layer_norm)])
        self.layers.extend(hidden_layer(width, width) for _ in range(1, depth))
        self.head: nn.Linear = nn.Linear(width, outputs)

    def make_block(self, depth: int) -> nn.Module:
        """Another hidden layer, the `depth`-th counted from 0, as wide as the current input of the head."""
        return hidden_layer(self.head.in_features, self.head.in_features)

    def forward(self, x: Tensor) -> Tensor:  # (..., inputs) -> (..., outputs)
        """The outputs."""
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def hidden_layer(inputs: int, width: int, layer_norm: bool = False) -> nn.Module:
    """A linear map and a ReLU, Kaiming-initialised, with layer normalisation between if asked for."""
    linear = nn.Linear(inputs, width)
    nn.init.kaiming_normal_(linear.weight, nonlinearity="relu")
    nn.init.zeros_(linear.bias)
    parts: list[tuple[str, nn.Module]] = [("linear", linear)]
    if layer_norm:
        parts.append(("norm", nn.LayerNorm(width)))
    return nn.Sequential(OrderedDict([*parts, ("relu", nn.ReLU())]))
