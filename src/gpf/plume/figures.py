"""One figure of a plume: a picture of it, and its statistics."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, LogNorm
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.special import exp1

from gpf.plume.durations import DurationStatistics, duration_density, runs
from gpf.plume.measures import concentration_density, gaussian_fit, lagged_correlation, tail_scale
from gpf.plume.pixels import concentration_field
from gpf.plume.probes import filling_time, steady_plume
from gpf.plume.render import COLOURS
from gpf.plume.survey import Survey

SHOWN = 120.0
"""Seconds of the time series."""
PIXELS = 400
"""Length of the snapshot's longer side."""
LAW = -1.5
"""Slope of the PDF of durations between their cut-offs (Celani et al. 2014)."""
_DISTANCES = ("#eda25f", "#d9643f", "#a5333f", "#5b1740")  # near to far
_INK, _MEAN, _SHARE, _SOURCE = "#404040", "#2f5d8c", "#d9643f", "#1e7a54"


def plume_figure(survey: Survey, seed: int, title: str) -> Figure:
    """A snapshot, a time series, whiffs, blanks, concentrations, profiles and correlations of a plume.

    Args:
        survey: The measurements.
        seed: Of the world that the snapshot shows.
        title: Of the figure.
    """
    figure = Figure(figsize=(12.6, 11.0), layout="constrained")
    figure.suptitle(title, parse_math=False, fontsize=13, weight="bold")
    panels = figure.subplot_mosaic("stt\nwbc\nxda")
    _draw_snapshot(panels["s"], survey, seed)
    _draw_series(panels["t"], survey)
    _draw_durations(panels["w"], survey, "whiffs")
    _draw_durations(panels["b"], survey, "blanks")
    _draw_concentrations(panels["c"], survey)
    _draw_profile(panels["x"], survey)
    _draw_axis(panels["d"], survey)
    _draw_correlations(panels["a"], survey)
    for axes in panels.values():
        axes.spines[["top", "right"]].set_visible(axes is panels["s"])
        axes.title.set(fontsize=11, ha="left", position=(0.0, 1.0))
    return figure


def _colours(survey: Survey) -> list[str]:
    return [_DISTANCES[n % len(_DISTANCES)] for n in range(len(survey.layout.distances))]


def _reference(survey: Survey) -> int:
    """The point on the axis that lies nearest to the crosswind line."""
    return int(np.argmin(np.abs(survey.layout.distances - survey.layout.profile_distance)))


def _draw_snapshot(axes: Axes, survey: Survey, seed: int) -> None:
    scenario, layout, threshold = survey.scenario, survey.layout, survey.statistics.threshold
    scale = PIXELS / max(scenario.width, scenario.height)
    rows, columns = (max(1, round(extent * scale)) for extent in (scenario.height, scenario.width))
    world = steady_plume(scenario, layout.source, [seed], filling_time(scenario))
    field = concentration_field(world, 0, rows, columns)
    faint = max(threshold, 1e-4 * float(field.max()), 1e-12)
    colours = ListedColormap(COLOURS / 255.0).with_extremes(under=COLOURS[0] / 255.0)
    image = axes.imshow(
        field, cmap=colours, norm=LogNorm(faint, max(float(np.quantile(field, 0.999)), 10.0 * faint)),
        extent=(0.0, scenario.width, 0.0, scenario.height), interpolation="bilinear",
    )  # fmt: skip
    line = layout.at(np.full(len(layout.offsets), layout.profile_distance), layout.offsets)
    axes.plot(*line[[0, -1]].T, color=_MEAN, linewidth=0.9, linestyle=(0, (4, 3)))
    axes.plot(*layout.source, "o", color=_SOURCE, markersize=6)
    points = layout.at(layout.distances, np.zeros_like(layout.distances))
    axes.scatter(points[:, 0], points[:, 1], s=26, c=_colours(survey), edgecolors="white", linewidths=0.9, zorder=3)
    axes.set(xlabel="x, m", ylabel="y, m", title="Snapshot, with source and probes")
    bar = axes.inset_axes((0.06, 0.13, 0.42, 0.03))
    axes.figure.colorbar(image, cax=bar, orientation="horizontal", extend="both")
    bar.set_title("concentration", fontsize=8.5, pad=3)
    bar.tick_params(labelsize=8)


def _draw_series(axes: Axes, survey: Survey) -> None:
    n, step = _reference(survey), survey.statistics.time_step
    series = survey.axis[n, 0, : max(2, round(SHOWN / step))]
    time = step * np.arange(len(series))
    axes.fill_between(time, series, color=_colours(survey)[n], alpha=0.25, linewidth=0)
    axes.plot(time, series, color=_colours(survey)[n], linewidth=1.0)
    mean = survey.statistics.axis[n].mean
    axes.axhline(mean, color=_INK, linewidth=0.9, linestyle="--", label=f"mean of the whole series, {mean:.3g}")
    above = series > survey.statistics.threshold
    axes.fill_between(
        time, -0.05, -0.015, where=above.tolist(), color=_INK, linewidth=0, step="mid",
        transform=axes.get_xaxis_transform(), clip_on=False, label="whiffs",
    )  # fmt: skip
    axes.tick_params(axis="x", pad=12)
    axes.set(xlim=(0.0, max(time[-1], step)), xlabel="time, s", ylabel="concentration")
    axes.set_ylim(0.0, 1.05 * float(series.max()) or 1.0)
    axes.set_title(f"Concentration on the axis, {survey.layout.distances[n]:.1f} m downwind")
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 0.99), ncols=2, fontsize=9, frameon=False, borderaxespad=0.3)


def _draw_durations(axes: Axes, survey: Survey, kind: str) -> None:
    """The density of durations at each distance, with the fitted power laws and the slope of the theory."""
    step = survey.statistics.time_step
    for series, point, colour in zip(survey.axis, survey.statistics.axis, _colours(survey), strict=True):
        lengths = getattr(runs(series > survey.statistics.threshold), kind)
        if len(lengths) == 0:
            continue
        density, of = duration_density(lengths), getattr(point, kind)
        slope = f"{of.slope:.2f}" if np.isfinite(of.slope) else "too few for a slope"
        axes.plot(
            density.centres * step, density.values / step, "o", color=colour, markersize=3.5, alpha=0.85,
            label=f"{point.distance:.1f} m: {slope}",
        )  # fmt: skip
        axes.set(xscale="log", yscale="log")
        if np.isfinite(of.slope):
            _draw_law(axes, lengths, of, step, colour)
    axes.set(xlabel="duration, s", ylabel="PDF, 1/s", title=f"{kind.capitalize()}: slope by maximum likelihood")
    if axes.has_data():
        _draw_theory(axes)
        low, high = axes.get_ylim()
        axes.set_ylim(0.3 * low, high)  # room for the legend
        axes.legend(loc="lower left", fontsize=8.5, frameon=False)


def _draw_law(axes: Axes, lengths: NDArray[np.int64], of: DurationStatistics, step: float, colour: str) -> None:
    """The truncated power law that was fitted, between its cut-offs."""
    low, high = round(of.low / step), round(of.high / step)
    share = np.mean((lengths >= low) & (lengths <= high)) / (np.arange(low, high + 1.0) ** of.slope).sum()
    x = np.array([low, high])
    axes.plot(x * step, share * x**of.slope / step, color=colour, linewidth=1.2)


def _draw_theory(axes: Axes) -> None:
    """A line with the slope of the theory, above the middle of what is drawn."""
    x, y = np.concatenate([line.get_xydata() for line in axes.lines]).T
    ends = np.array([x.min(), x.max()]) ** 0.8 * np.sqrt(x.min() * x.max()) ** 0.2
    middle = np.sqrt(ends.prod())
    height = 4.0 * np.exp(np.interp(np.log(middle), np.log(np.sort(x)), np.log(y[np.argsort(x)])))
    axes.plot(ends, height * (ends / middle) ** LAW, color=_INK, linewidth=1.1, linestyle="--", label="slope -3/2")


def _draw_concentrations(axes: Axes, survey: Survey) -> None:
    """The density of the concentration within whiffs, and the fitted tails."""
    threshold = survey.statistics.threshold
    for series, point, colour in zip(survey.axis, survey.statistics.axis, _colours(survey), strict=True):
        within = series[series > threshold]
        within = within[within > 0.0]
        if len(within) < 2:
            continue
        density = concentration_density(within)
        axes.plot(
            density.centres, density.values, "o", color=colour, markersize=3.5, alpha=0.85,
            label=f"{point.distance:.1f} m: $c_0$ = {point.tail_scale:.2g}",
        )  # fmt: skip
        scale, start = tail_scale(within)
        c = np.geomspace(start, within.max(), 60)
        tail = np.mean(within > start) * np.exp(-c / scale) / (c * exp1(start / scale))
        axes.plot(c, tail, color=colour, linewidth=1.2)
        axes.set(xscale="log", yscale="log")
    if axes.has_data():
        seen = np.concatenate([line.get_ydata() for line in axes.lines if line.get_marker() == "o"])
        axes.set_ylim(0.3 * seen.min(), 3.0 * seen.max())
        axes.legend(loc="lower left", fontsize=8.5, frameon=False)
    axes.set(xlabel="concentration c", ylabel="PDF", title="Within whiffs: tail exp(-c/$c_0$)/c")


def _draw_profile(axes: Axes, survey: Survey) -> None:
    """Mean and intermittency across the wind, each with its Gaussian; the mean as a share of the highest."""
    profile = survey.statistics.profile
    fine = np.linspace(profile.offsets[0], profile.offsets[-1], 300)
    mean = np.array(profile.mean) / (max(profile.mean) or 1.0)
    for values, colour, name in (
        (mean, _MEAN, "mean / highest mean"),
        (np.array(profile.intermittency), _SHARE, "intermittency"),
    ):
        height, centre, width = gaussian_fit(profile.offsets, values)
        axes.plot(profile.offsets, values, "o", color=colour, markersize=4, label=rf"{name}: $\sigma$ = {width:.2f} m")
        axes.plot(fine, height * np.exp(-0.5 * ((fine - centre) / width) ** 2), color=colour, linewidth=1.2)
    axes.set(xlabel="distance from the axis, m", ylim=(0.0, 1.38))
    axes.set_yticks(np.linspace(0.0, 1.0, 6))
    axes.set_title(f"Across the wind, {profile.distance:.1f} m downwind")
    axes.legend(loc="upper left", fontsize=8.5, frameon=False)


def _draw_axis(axes: Axes, survey: Survey) -> None:
    points, x = survey.statistics.axis, survey.layout.distances
    nearest = points[0].mean or 1.0
    for values, colour, marker, name in (
        ([point.mean / nearest for point in points], _MEAN, "o", "mean / mean at the first probe"),
        ([point.intermittency for point in points], _SHARE, "s", "intermittency"),
        ([point.antenna_correlation for point in points], _SOURCE, "D", "correlation of the antennae"),
    ):
        axes.plot(x, values, f"{marker}-", color=colour, markersize=5, linewidth=1.2, label=name)
    axes.set(xlabel="distance from the source, m", xlim=(0.0, 1.08 * float(x[-1])), ylim=(0.0, 1.38))
    axes.set_yticks(np.linspace(0.0, 1.0, 6))
    axes.set_title(f"Along the axis: mean falls as distance^{survey.statistics.decay:.2f}", parse_math=False)
    axes.legend(loc="upper left", fontsize=8.5, frameon=False)


def _draw_correlations(axes: Axes, survey: Survey) -> None:
    """How the concentration is correlated with itself and with that at the other antenna, later on."""
    n, step = _reference(survey), survey.statistics.time_step
    point = survey.statistics.axis[n]
    scale = point.integral_time if np.isfinite(point.integral_time) else 1.0
    lags = min(survey.axis.shape[2] - 1, max(10, round(8.0 * scale / step)))
    time = step * np.arange(lags + 1)
    own = lagged_correlation(survey.axis[n], survey.axis[n], lags)
    other = lagged_correlation(survey.left[n], survey.right[n], lags)
    axes.fill_between(time, own, color=_MEAN, alpha=0.12, linewidth=0)
    axes.plot(time, own, color=_MEAN, label=f"one point: integral time scale {point.integral_time:.2f} s")
    separation = survey.statistics.separation
    axes.plot(
        time, other, color=_SOURCE, linestyle="--",
        label=f"antennae {separation:g} m apart: {point.antenna_correlation:.3f} at lag 0",
    )  # fmt: skip
    axes.axhline(0.0, color=_INK, linewidth=0.8)
    axes.set(xlabel="lag, s", xlim=(0.0, max(time[-1], step)), ylim=(-0.25, 1.38))
    axes.set_yticks(np.linspace(-0.2, 1.0, 7))
    axes.set_title(f"Correlation over time, {point.distance:.1f} m downwind")
    axes.legend(loc="upper right", fontsize=8.5, frameon=False)
