"""Figures of spectra: every row says which layer it is."""

from gpf.network import MLP
from gpf.spectra.figures import weights_figure
from gpf.spectra.inspection import inspect


def test_every_layer_is_named_where_it_first_is():
    models = [MLP(inputs=8, width=6, outputs=3, depth=depth) for depth in (1, 2, 3)]
    figure = weights_figure(["one", "two", "three"], [inspect(model, quiet=True) for model in models], [{}, {}, {}])
    named = [
        (axes.get_ylabel(), axes.get_subplotspec().colspan.start)
        for axes in figure.axes
        if axes.axison and axes.get_ylabel()
    ]
    assert named == [("layers.0.linear", 0), ("layers.1.linear", 1), ("layers.2.linear", 2), ("head", 0)]
