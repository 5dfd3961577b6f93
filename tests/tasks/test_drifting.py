"""Problems that change for ever: what changes in them, and who takes notice."""

import itertools

import numpy as np
import pytest
import torch

from gpf.data import mnist
from gpf.tasks import drifting
from gpf.tasks.drifting import PERMUTED_MNIST, REGRESSION, PermutedMNIST, SlowRegression

pytestmark = pytest.mark.usefixtures("one_torch_thread")


def begin(task, folder, **settings):
    config = task.of(settings)
    return task.training(task.create(folder, config), config, None)


@pytest.mark.usefixtures("loaded_data")
class TestPermutedMNIST:
    """Digits in another order."""

    def test_every_task_has_digits_whose_pixels_are_in_an_order_of_its_own(self):
        problem = PermutedMNIST(seed=1, samples=50)
        images = np.sort(mnist()[0][0], axis=1)
        known = {(row.tobytes(), int(label)) for row, label in zip(images, mnist()[0][1], strict=True)}
        tasks = [problem.task(n) for n in (0, 1)]
        for inputs, wanted in tasks:
            rows = np.sort((inputs * 255).round().numpy().astype(np.uint8), axis=1)
            assert {(row.tobytes(), int(label)) for row, label in zip(rows, wanted, strict=True)} <= known
            assert len({row.tobytes() for row in rows}) == 50
        never = [(inputs == 0).all(0) for inputs, _ in tasks]  # pixels at the rim
        assert (never[0] != never[1]).sum() > 200
        again = PermutedMNIST(seed=1, samples=50).task(1)
        assert torch.equal(again[0], tasks[1][0])

    def test_gpf_takes_notice_of_another_order_and_learns_it_or_begins_a_new_path(self, tmp_path):
        training = begin(PERMUTED_MNIST, tmp_path / "run", method="gpf", tasks=2, samples=8000)
        first, second = training.round(), training.round()
        assert first["decisions"] == []
        first_of_all, then = (decision["kind"] for decision in second["decisions"])
        assert first_of_all == "trial"
        assert then in ("continued", "false-alarm", "new-path")
        assert first["score"] > 0.7

    def test_reset_on_change_begins_anew_at_the_drop_that_gpf_sees(self, tmp_path):
        seen = {}
        for method in ("gpf", "reset-on-change"):
            training = begin(PERMUTED_MNIST, tmp_path / method, method=method, tasks=2, samples=8000)
            first, second = training.round(), training.round()
            assert first["decisions"] == []
            seen[method] = second["decisions"]
        assert [decision["kind"] for decision in seen["reset-on-change"]] == ["new-path"]
        for name in ("rate", "before"):
            assert seen["reset-on-change"][0][name] == seen["gpf"][0][name]
        assert second["kept"] == first["kept"]
        assert second["score"] > 0.7

    def test_accuracy_is_counted_before_an_image_is_learnt_from(self, tmp_path):
        training = begin(PERMUTED_MNIST, tmp_path / "run", method="backprop", tasks=1, samples=16)
        inputs, wanted = training.problem.task(0)
        known = (training.net.model(inputs).argmax(1) == wanted).float().mean()
        assert training.round()["score"] == pytest.approx(float(known))


class TestSlowRegression:
    """A function of bits."""

    def test_one_slow_bit_flips_from_task_to_task_and_the_others_are_random(self):
        problem = SlowRegression(seed=0, samples=400)
        tasks = [problem.task(n)[0].numpy() for n in range(6)]
        for bits in tasks:
            assert (bits[:, :15] == bits[0, :15]).all()
            assert (bits[:, -1] == 1).all()
            assert np.abs(bits[:, 15:20].mean(axis=0) - 0.5).max() < 0.1
        for one, following in itertools.pairwise(tasks):
            assert (one[0, :15] != following[0, :15]).sum() == 1

    def test_values_are_those_of_the_threshold_units_one_by_one(self):
        problem = SlowRegression(seed=4, samples=20)
        inputs, values = problem.task(3)
        for bits, value in zip(inputs.numpy(), values[:, 0].tolist(), strict=True):
            total = 0.0
            for unit in range(problem.UNITS):
                weights = problem._first[:, unit]
                agree = sum((w > 0 and b == 1) or (w < 0 and b == 0) for w, b in zip(weights, bits, strict=True))
                total += problem._last[unit, 0] * (agree > 0.7 * 21)
            assert value == total

    def test_the_score_is_the_squared_error(self, tmp_path):
        training = begin(REGRESSION, tmp_path / "run", method="backprop", tasks=1, samples=16)
        inputs, wanted = training.problem.task(0)
        error = (training.net.model(inputs) - wanted).square().mean()
        assert training.round()["score"] == pytest.approx(float(error.detach()), rel=1e-5)


def test_a_method_has_the_strength_asked_for(tmp_path):
    for strength in (None, 0.5):
        training = begin(REGRESSION, tmp_path / str(strength), method="l2-init", strength=strength)
        assert training.method.strength == (drifting.STRENGTHS["regression"]["l2-init"] if strength is None else 0.5)
    with pytest.raises(ValueError, match="reset-on-change .*permuted-mnist"):
        drifting.Config(problem="regression", method="reset-on-change").check()
    with pytest.raises(ValueError, match="strength .*backprop.*0.5"):
        drifting.Config(method="backprop", strength=0.5).check()
