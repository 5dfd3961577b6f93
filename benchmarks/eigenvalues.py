"""Is a network's eigenvalue composition preserved as layers are added? The paper's claim, in numbers.

    python benchmarks/eigenvalues.py [--seeds 5] [--write]

Random networks against the theory, the conditions of the paper's Theorem 1, and networks that are trained on real data
(scikit-learn's 1,797 handwritten digits) while layers grow, are pruned and freeze. `--write` puts the tables into
docs/spectra.md. Takes about five minutes on one core.
"""

import argparse
import copy
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from documents import insert
from sklearn.datasets import load_digits
from torch import Tensor, nn

import gpf
from gpf.reports.tables import markdown_table, summary
from gpf.spectra import LayerOperator, Region, Spectrum, folds, gram_spectrum, marchenko_pastur, moments
from gpf.spectra.activations import apply
from gpf.spectra.capture import capture

ACTIVATIONS = ["relu", "gelu", "silu", "tanh", "abs"]
MODULES: dict[str, Callable[[], nn.Module]] = {"relu": nn.ReLU, "gelu": nn.GELU, "silu": nn.SiLU, "tanh": nn.Tanh}
DEPTH = 5


class Abs(nn.Module):
    """Absolute value, less its mean at unit scale: an activation without a linear part (zeta = 0)."""

    def forward(self, x: Tensor) -> Tensor:
        """Apply it."""
        return x.abs() - (2.0 / torch.pi) ** 0.5


class Stack(nn.Module):
    """A plain chain that can grow, of any activation."""

    def __init__(self, activation: str, inputs: int = 64, width: int = 128, outputs: int = 10) -> None:
        super().__init__()
        self.activation = activation
        self.sizes = inputs, width
        self.layers = nn.ModuleList([self.make_block(0)])
        self.head = nn.Linear(width, outputs)

    def make_block(self, depth: int) -> nn.Module:
        """A linear layer of unit gain for its activation, and the activation."""
        linear = nn.Linear(self.sizes[1] if depth else self.sizes[0], self.sizes[1])
        f = moments(self.activation)
        nn.init.normal_(linear.weight, std=float(1.0 / np.sqrt(linear.in_features * (f.eta + f.mean**2))))
        nn.init.zeros_(linear.bias)
        return nn.Sequential(linear, MODULES.get(self.activation, Abs)())

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        for layer in self.layers:
            x = layer(x)
        out: Tensor = self.head(x)
        return out


def main() -> None:
    """Measure, print, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--write", action="store_true", help="put the tables into docs/spectra.md")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    tables = {
        "initialisation": initialisation_table(),
        "theorem": theorem_table(),
        "training": training_table(arguments.seeds),
        "folds": folds_table(arguments.seeds),
    }
    for name, text in tables.items():
        print(f"{name}\n{text}\n")
        if arguments.write:
            insert("docs/spectra.md", name, text)


def initialisation_table(size: int = 600) -> str:
    """Random square networks: the spread of the spectrum after each layer, predicted and drawn."""
    rows = []
    for activation in [*ACTIVATIONS, "linear"]:
        operator, laws = LayerOperator.of(activation), [marchenko_pastur(1.0)]
        for _ in range(DEPTH):
            laws.append(operator(laws[-1]))
        predicted = [law.moments[1] / law.moments[0] ** 2 for law in laws]
        distances = [float(np.abs(law.cdf(GRID) - laws[0].cdf(GRID)).max()) for law in laws]
        drawn = np.mean([drawn_ratios(activation, size, seed) for seed in range(3)], axis=0)
        about = [activation, f"{operator.linearity:.3f}"]
        for what, values in (("predicted", predicted), (f"drawn, n = {size}", drawn)):
            rows.append([*about, what, *(f"{value:.2f}" for value in values)])
        rows.append([*about, "distance from the data's", *(f"{value:.3f}" for value in distances)])
    return markdown_table(["activation", "zeta/eta", "", *(f"layer {n}" for n in range(DEPTH + 1))], rows)


GRID = np.concatenate([np.geomspace(1e-6, 0.1, 300), np.linspace(0.1, 30.0, 2000)])


def drawn_ratios(activation: str, size: int, seed: int) -> list[float]:
    """m2 / m1^2 of the Gram matrix of every layer of a random network, centred and rescaled between layers."""
    rng = np.random.default_rng(seed)
    f = moments(activation)
    y = rng.normal(size=(size, size))
    ratios = []
    for depth in range(DEPTH + 1):
        if depth:
            y = (apply(activation, rng.normal(size=(size, size)) @ y / np.sqrt(size)) - f.mean) / np.sqrt(f.eta)
        spectrum = gram_spectrum(y, size)
        ratios.append(spectrum.moment(2) / spectrum.moment(1) ** 2)
    return ratios


def theorem_table() -> str:
    """The conditions of Theorem 1, activation by activation."""
    lows = (0.1, 0.5, 2.0)
    rows = []
    for activation in [*ACTIVATIONS, "linear"]:
        operator = LayerOperator.of(activation)
        try:
            law, depth = operator.fixed_point(most=100)
            limit = [str(depth), f"{law.moments[1] / law.moments[0] ** 2:.2f}"]
        except ArithmeticError:
            limit = ["none within 100", "grows by 1 a layer"]
        found = [operator.contraction(Region(low=low, high=8.0)) for low in lows]
        holds = "holds" if all(one.well_defined for one in found) else "fails"
        factors = [f"{one.factor:.2f}" for one in found]
        rows.append([activation, *limit, holds, *factors, f"{found[0].second_moment:.3f}"])
    header = ["activation", "layers to the fixed point", "m2 / m1^2 there", "condition 1"]
    header += [f"greatest factor found, Im z >= {low:g}" for low in lows]
    return markdown_table([*header, "factor of the variance"], rows)


def digits() -> tuple[Tensor, Tensor]:
    """The digits, of zero mean and unit variance over all."""
    data = load_digits()
    images = torch.tensor(data.data, dtype=torch.float32)
    return (images - images.mean()) / images.std(), torch.tensor(data.target)


def spectra(model: nn.Module, probe: Tensor) -> list[Spectrum]:
    """The spectrum of each hidden layer's Gram matrix, centred and scaled to mean 1, so that only its shape counts."""
    out = []
    for layer in capture(model, probe)[:-1]:
        y = layer.activated.double().numpy()
        y = y - y.mean()
        spectrum = gram_spectrum(y, len(y))
        out.append(Spectrum(spectrum.values / spectrum.moment(1), spectrum.shares, spectrum.size, True))
    return out


def distance(one: Spectrum, other: Spectrum) -> float:
    """Kolmogorov distance between two measured spectra."""
    x = np.concatenate([one.values, other.values])
    return float(np.abs(one.cdf(x) - other.cdf(x)).max())


@dataclass(frozen=True)
class Stage:
    """One step of a training: the network, and the spectra of its layers, before and after it."""

    before: nn.Module
    after: nn.Module
    spectra_before: list[Spectrum]
    spectra_after: list[Spectrum]


def schedule(activation: str, seed: int) -> dict[str, Stage]:
    """Train for a while between events, and look at the network around each step."""
    torch.manual_seed(seed)
    images, labels = digits()
    probe = images[:256]
    model = Stack(activation)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    rules = gpf.Rules(grow_init="built", weight_threshold=0.03, saliency_threshold=0.03, belief_threshold=2.0)
    net = gpf.attach(model, optimizer, rules=rules)
    steps: dict[str, Stage] = {}

    def watch(name: str, act: Callable[[], object]) -> None:
        before, spectra_before = copy.deepcopy(model), spectra(model, probe)
        act()
        steps[name] = Stage(before, copy.deepcopy(model), spectra_before, spectra(model, probe))

    def learn() -> None:
        for _ in range(10):
            for batch in torch.randperm(len(images)).split(64):
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
                optimizer.step()

    watch("10 epochs from the start", learn)
    watch("growing a layer", net.grow)
    watch("10 epochs after it", learn)
    watch("growing another", net.grow)
    watch("pruning", net.prune)
    watch("10 epochs after both", learn)
    watch("freezing the first layer", lambda: net.freeze(0))
    watch("10 epochs after that", learn)
    return steps


def training_table(seeds: int) -> str:
    """How far each step moves the spectra of the layers that were there, and how far a new one is from its input."""
    rows = []
    runs = {activation: [schedule(activation, seed) for seed in range(seeds)] for activation in ACTIVATIONS}
    for step in runs["relu"][0]:
        cells = []
        for activation in ACTIVATIONS:
            moved = [
                [
                    distance(one, other)
                    for one, other in zip(run[step].spectra_before, run[step].spectra_after, strict=False)
                ]
                for run in runs[activation]
            ]
            means = np.mean(moved, axis=0)
            cells.append(", ".join(f"{value:.2f}" for value in means))
        rows.append([f"{step}: layers that were there", *cells])
        if step.startswith("growing"):
            apart = [[distance(*run[step].spectra_after[-2:]) for run in runs[name]] for name in ACTIVATIONS]
            rows.append([f"{step}: the new layer against its input", *(summary(some, ".2f") for some in apart)])
    return markdown_table(["step", *ACTIVATIONS], rows)


def folds_table(seeds: int) -> str:
    """Linear regions on paths between digits, before and after each step, for ReLU."""
    images, _ = digits()
    rows = []
    runs = [schedule("relu", seed) for seed in range(seeds)]
    for step in runs[0]:
        cells = []
        for side in ("before", "after"):
            counts = [[layer.regions.mean() for layer in folds(getattr(run[step], side), images[:256])] for run in runs]
            cells.append(", ".join(f"{value:.1f}" for value in np.mean(counts, axis=0)))
        rows.append([step, *cells])
    return markdown_table(["step", "regions before, up to each layer", "after"], rows)


if __name__ == "__main__":
    main()
