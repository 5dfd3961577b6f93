"""Draw the pictures of the documentation that no other command makes, into docs/images.

    python benchmarks/docs_pictures.py [sensors theory propagation navigator walk training] [--run runs/zoo/reference]

`training` copies two figures of a run, by default of the one that `make zoo` trains.
"""

import argparse
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from documents import ROOT
from matplotlib.figure import Figure
from numpy.typing import NDArray

from gpf import spectra
from gpf.navigation.agents import load_navigator
from gpf.navigation.evaluate import film
from gpf.navigation.policies import CastAndSurge, Policy
from gpf.navigation.seeds import TUNING
from gpf.plume.render import save_animation
from gpf.plume.scenario import Scenario
from gpf.plume.world import World

IMAGES = ROOT / "docs" / "images"
SENSORS: dict[str, Scenario] = {
    "no dynamics (ideal)": Scenario.preset("turbulent"),
    "fast electronic nose": Scenario.preset("turbulent").with_sensor("fast-e-nose"),
    "TGS2600, metal oxide": Scenario.preset("turbulent").with_sensor("TGS2600"),
    "TGS2600 with the inverse filter": Scenario.preset("turbulent")
    .with_sensor("TGS2600")
    .changed(["sensor_inverse=true"]),
}
WIDTH, SAMPLES = 400, 800
"""Units of every layer of the drawn network, and the inputs that it gets."""
EPISODE = TUNING + 3
FLIGHT = TUNING + 1
"""An episode in which the navigator starts outside the plume and has to search for it."""


def walked(policy: Policy, scenario: Scenario, seed: int) -> NDArray[np.int64]:
    """The actions of a policy in one episode."""
    world, actions, taken = _begun(scenario, seed), np.zeros(1, np.int64), []
    policy.begin([seed], scenario)
    while world.lanes[0]["running"]:
        policy.act(world.raw, np.zeros(1, np.int64), actions)
        world.step(actions)
        taken.append(int(actions[0]))
    return np.array(taken)


def readings(scenario: Scenario, seed: int, actions: NDArray[np.int64]) -> NDArray[np.float64]:
    """What the left antenna reads on a walk."""
    world, found = _begun(scenario, seed), []
    for action in actions:
        world.step(np.array([action]))
        found.append(float(world.raw[0, 0]))
    return np.array(found)


def _begun(scenario: Scenario, seed: int) -> World:
    world = World(1, scenario)
    world.seed([seed])
    world.begin()
    return world


def draw_sensors() -> None:
    """One walk in one plume, smelled by four sensors."""
    ideal = next(iter(SENSORS.values()))
    actions = walked(CastAndSurge(), ideal, EPISODE)
    figure = Figure(figsize=(8, 6), layout="constrained")
    panels = figure.subplots(len(SENSORS), 1, sharex=True)
    for axes, (name, scenario) in zip(panels, SENSORS.items(), strict=True):
        series = readings(scenario, EPISODE, actions)
        axes.plot(np.arange(len(series)) * scenario.time_step, series, color="#2f5d8c", linewidth=1)
        axes.set_title(name, fontsize=10, loc="left")
        axes.set_ylim(bottom=0)
    panels[-1].set_xlabel("time (s)")
    figure.supylabel("reading (concentration)")
    _save(figure, "sensors.png")


def draw_theory() -> None:
    """Predicted and drawn spectra of random layers, for an activation that widens them and one that does not."""
    generator = np.random.default_rng(0)
    figure = Figure(figsize=(9, 5), layout="constrained")
    panels = figure.subplots(2, 3, sharex="row")
    for row, (name, activation) in zip(panels, (("tanh", np.tanh), ("abs", np.abs)), strict=True):
        y = generator.standard_normal((WIDTH, SAMPLES))
        for depth in range(1, 6):
            y = _layer(y, activation, generator)
            if depth % 2 == 0:
                continue
            axes = row[(depth - 1) // 2]
            eigenvalues = np.linalg.eigvalsh(y @ y.T / SAMPLES)
            mean = spectra.moments(activation).eta
            law = spectra.deep_law(activation, widths=[WIDTH] * (depth + 1), m=SAMPLES, gram="features")
            x = np.linspace(1e-3, 8.0, 400)
            axes.hist(eigenvalues / eigenvalues.mean(), np.linspace(0.0, 8.0, 65), density=True, color="#b9cbe0")
            axes.plot(x, mean * law.density(mean * x), color="#ab3742")
            axes.set_title(f"{name}, layer {depth}", fontsize=10)
            axes.set_yscale("log")
            axes.set_ylim(1e-3, 20.0)
    panels[1][1].set_xlabel("eigenvalue, in units of the mean")
    figure.supylabel("density")
    _save(figure, "theory-spectra.png")


def _layer(
    y: NDArray[np.float64], activation: Callable[..., NDArray[np.float64]], generator: np.random.Generator
) -> NDArray[np.float64]:
    """A random layer; its inputs and outputs have the variance of Gaussian noise, and no mean."""
    z = generator.standard_normal((len(y), len(y))) @ y / np.sqrt(len(y))
    z /= z.std()
    out = activation(z)
    centred: NDArray[np.float64] = out - float(spectra.moments(activation).mean)
    return centred / np.sqrt((centred**2).mean())


def draw_propagation() -> None:
    """How deep signals propagate, by the variance of the weights."""
    figure = Figure(figsize=(7, 3.4), layout="constrained")
    axes = figure.subplots()
    sigmas = np.linspace(0.6, 2.0, 71)
    for bias in (0.05, 0.2):
        depths = [spectra.propagation(sigma, bias, "tanh").depth_scale for sigma in sigmas]
        axes.plot(sigmas, depths, label=f"bias {bias}")
    axes.set_yscale("log")
    axes.set_xlabel("standard deviation of weights, times the square root of the width")
    axes.set_ylabel("depth scale (layers)")
    axes.legend(frameon=False)
    _save(figure, "theory-depth.png")


def draw_navigator() -> None:
    """An episode of a navigator that comes with gpf, in the turbulent world."""
    navigator = load_navigator("zoo:turbulent")
    save_animation(film(navigator.policy, navigator.scenario, FLIGHT, pixels=400), IMAGES / "navigator.gif")
    print(f"navigator.gif: {(IMAGES / 'navigator.gif').stat().st_size / 1000:.0f} kB")


def draw_walk() -> None:
    """An episode of cast-and-surge in the world of the paper."""
    frames = film(CastAndSurge(), Scenario.preset("paper"), TUNING + 6, pixels=360)
    save_animation(frames, IMAGES / "walk.gif")
    print(f"walk.gif: {(IMAGES / 'walk.gif').stat().st_size / 1000:.0f} kB")


def copy_training(run: Path) -> None:
    """Figures of a run of gpf train."""
    for name in ("training.png", "episode-map.png"):
        shutil.copy(run / "figures" / name, IMAGES / f"navigator-{name}")
        print(f"navigator-{name}: from {run.name}")


def _save(figure: Figure, name: str) -> None:
    figure.savefig(IMAGES / name, dpi=120)
    print(f"{name}: {(IMAGES / name).stat().st_size / 1000:.0f} kB")


def main() -> None:
    """Draw what is asked for, or everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--run", type=Path, default=Path("runs", "zoo", "reference"))
    arguments = parser.parse_args()
    known: dict[str, Callable[[], None]] = {
        "sensors": draw_sensors, "theory": draw_theory, "propagation": draw_propagation, "navigator": draw_navigator,
        "walk": draw_walk, "training": partial(copy_training, arguments.run),
    }  # fmt: skip
    if unknown := set(arguments.names) - set(known):
        parser.error(f"unknown picture {sorted(unknown)[0]!r}; accepted: {', '.join(known)}")
    for name in arguments.names or known:
        known[name]()


if __name__ == "__main__":
    main()
