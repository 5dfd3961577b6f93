"""Figures of spectra: every row says which layer it is."""

from gpf.network import MLP
from gpf.spectra.figures import weights_figure
from gpf.spectra.inspection import inspect


def test_no_more_than_four_snapshots_stand_next_to_each_other():
    model = MLP(inputs=8, width=6, outputs=3)
    labels = [f"moment {n}" for n in range(6)]
    figure = weights_figure(labels, [inspect(model, quiet=True)] * 6, [{}] * 6)
    assert figure.get_figwidth() < 10
    shown = [axes for axes in figure.axes if axes.axison]
    assert len(shown) == 6 * 2
    titled = {axes.get_title(): axes.get_position() for axes in shown if axes.get_title()}
    assert list(titled) == labels
    assert titled["moment 3"].y0 == titled["moment 0"].y0 > titled["moment 4"].y1
    assert titled["moment 4"].x0 == titled["moment 0"].x0


def test_every_layer_is_named_where_it_first_is():
    models = [MLP(inputs=8, width=6, outputs=3, depth=depth) for depth in (1, 2, 3)]
    figure = weights_figure(["one", "two", "three"], [inspect(model, quiet=True) for model in models], [{}, {}, {}])
    named = [
        (axes.get_ylabel(), axes.get_subplotspec().colspan.start)
        for axes in figure.axes
        if axes.axison and axes.get_ylabel()
    ]
    assert named == [("layers.0.linear", 0), ("layers.1.linear", 1), ("layers.2.linear", 2), ("head", 0)]
