"""Conclusions follow from the numbers: of matrices that are random, or are not, by construction."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from gpf.spectra.inspection import Inspection, inspect
from gpf.tasks.conclusions import activations_conclusion, plasticity_conclusion, weights_conclusion

pytestmark = pytest.mark.usefixtures("one_torch_thread")


def inspected(*matrices):
    model = nn.Sequential(*(nn.Linear(matrix.shape[1], matrix.shape[0]) for matrix in matrices))
    for layer, matrix in zip(model, matrices, strict=True):
        layer.weight.data = torch.from_numpy(matrix).float()
    return inspect(model, quiet=True)


def random(rows=64, columns=48, seed=0):
    return np.random.default_rng(seed).normal(size=(rows, columns))


def test_random_weights_cannot_be_told_from_random_ones():
    said = weights_conclusion(inspected(random(), random(64, 64, 1)))
    assert said.startswith("0 of 112 eigenvalues of the final weights lie outside the bulk of the random law: ")
    assert said.endswith("these weights are indistinguishable from random ones.")


def test_strong_directions_in_noise_are_counted():
    rng = np.random.default_rng(3)
    planted = random() + sum(40 * np.outer(rng.normal(size=64) / 8, rng.normal(size=48) / 7) for _ in range(2))
    said = weights_conclusion(inspected(planted, random(seed=5)))
    assert said.startswith(
        "2 of 96 eigenvalues of the final weights lie outside the bulk of the random law (0: 2), where"
    )
    assert "learning shows in 2 strong directions" in said


def test_an_identity_is_not_random_and_its_spikes_say_nothing():
    said = weights_conclusion(inspected(np.eye(64) + 0.01 * random(64, 64), random(seed=5)))
    assert "do not follow that law either" in said
    assert "0 (0." in said
    assert "1 (0." not in said  # the random one does
    assert "no measure of what was learned" in said


def test_layers_too_small_to_judge_are_named():
    said = weights_conclusion(inspected(random(), random(3, 64)))
    assert said.startswith("0 of 48 eigenvalues")
    assert said.endswith("Too small to judge: 1.")
    assert weights_conclusion(inspected(random(3, 4))) == (
        "All layers have too few eigenvalues for a comparison with random weights."
    )


def test_activations_of_random_layers_cannot_be_told_from_random_and_those_of_others_can():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
    batch = torch.randn(200, 20)
    first = inspect(model, batch, quiet=True)
    model[2].weight.data = torch.outer(torch.rand(64), torch.rand(64))  # one direction only
    second = inspect(model, batch, quiet=True)
    beyond = [layer.gram.kolmogorov > layer.gram.chance for layer in first.layers]
    told = activations_conclusion(first)
    assert ("none of the 2 layers" in told) == (not any(beyond))
    told = activations_conclusion(second)
    assert "2 (" in told
    assert f"2 ({second.layers[1].gram.kolmogorov:.2f}, chance {second.layers[1].gram.chance:.2f})" in told
    assert activations_conclusion(Inspection([])).startswith("There is no law")


def test_layers_whose_activations_differ_by_more_than_chance_are_named():
    def told(*distances):
        grams = [SimpleNamespace(kolmogorov=distance, chance=0.1) for distance in distances]
        return activations_conclusion(Inspection([SimpleNamespace(name=f"{n}", gram=g) for n, g in enumerate(grams)]))

    differ = "layers differ from the law of a random layer by more than chance: learning changed the directions in use."
    alike = "indistinguishable from those of a random layer with the same inputs."
    assert told(0.3) == f"At the end, the activations of 1 of 1 {differ} The layers: 0 (0.30, chance 0.10)."
    assert told(0.05, 0.3) == (
        f"At the end, the activations of 1 of 2 {differ} The layers: 1 (0.30, chance 0.10). Those of the other 1 are"
        f" {alike}"
    )
    assert told(0.05, 0.1).endswith(alike)


def layer(name, dead, rank):
    return {"name": name, "dead": dead, "effective_rank": rank}


def test_plasticity_is_lost_where_units_die_or_rank_falls():
    healthy = [[layer("a", 0.0, 20.0)], [layer("a", 0.02, 18.0), layer("b", 0.0, 7.0)]]
    assert plasticity_conclusion(healthy) == (
        "No sign of lost plasticity: at the last validation at most 2% of a layer's units are dead, and every layer"
        " keeps at least 90% of the effective rank that it had at its first."
    )
    said = plasticity_conclusion([*healthy, [layer("a", 0.25, 19.0), layer("b", 0.0, 3.0)]])
    assert said.startswith("Some plasticity may be lost: ")
    assert "(a: 25%)" in said
    assert "(b: 7.0 to 3.0)" in said


def test_one_measurement_of_plasticity_concludes_nothing():
    line = [{"name": "layers.0", "dead": 0.5, "effective_rank": 1.0}]
    assert plasticity_conclusion([line]) == "There was only one validation: nothing to compare it with."
    assert plasticity_conclusion([line, line]) != plasticity_conclusion([line])
