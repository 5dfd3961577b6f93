"""Characters of TinyShakespeare: operations and steps of opponents, the learning rate, and runs that grow."""

import math
from pathlib import Path

import pytest
import torch

from gpf.runs.folder import Outcome
from gpf.tasks import characters
from gpf.tasks.characters import TASK, Config, planned_flops, rate_at, share_to_reach, step_flops

pytestmark = pytest.mark.usefixtures("one_torch_thread")


def test_operations_of_a_step_by_hand():
    """Width 8, context 4, batch 2: six a weight of a block and of the head, and attention's 12 T C for each token."""
    config = Config(kind="fixed", width=8, heads=2, context=4, batch=2)
    block = 6 * 12 * 8 * 8 + 12 * 4 * 8
    assert step_flops(config, 3) == 8 * (3 * block + 6 * 65 * 8)
    assert planned_flops(config) == 2500 * step_flops(config, 8)


def test_a_network_that_grows_takes_what_its_depths_take():
    """Of 100 steps in rounds of 10, two layers have 20 (12 % is passed in the second round), four 10, eight 70."""
    config = Config(steps=100, round_steps=10)
    two, four, eight = (step_flops(config, depth) for depth in (2, 4, 8))
    assert planned_flops(config) == 20 * two + 10 * four + 70 * eight


@pytest.mark.parametrize("layers", [1, 4, 8])
def test_at_equal_compute_a_fixed_network_takes_as_many_operations_to_within_a_step(layers):
    config = TASK.of(TASK.variants[characters.fixed(layers, True)])
    assert abs(planned_flops(config) - planned_flops(Config())) <= step_flops(config, layers) / 2
    assert TASK.length(config) == (config.all_steps, "step")
    assert config.variant == characters.fixed(layers, True)
    assert rate_at(config, config.all_steps - 1) == pytest.approx(0.1 * config.learning_rate, rel=1e-3)


def test_every_depth_up_to_the_final_one_is_an_opponent_twice():
    fixed = [settings["layers"] for name, settings in TASK.variants.items() if name.startswith("fixed")]
    assert sorted(fixed) == sorted([*range(1, 9), *range(1, 9)])


def test_the_learning_rate_rises_and_falls_to_a_tenth():
    config = Config(steps=1000, learning_rate=0.02)
    rates = [rate_at(config, step) for step in range(1000)]
    assert rates[0] == pytest.approx(0.02 / 50)
    assert max(rates) == pytest.approx(0.02)
    assert rates.index(max(rates)) in (49, 50)
    assert rates[525] == pytest.approx(0.02 * 0.55)
    assert rates[-1] == pytest.approx(0.002, rel=1e-3)


def test_what_it_took_to_reach_the_others_loss():
    def outcome(losses, cost):
        lines = [{"validation": loss, "flops": cost * (i + 1)} for i, loss in enumerate(losses)]
        return Outcome(Path("run"), {}, lines, [])

    theirs = outcome([3.0, 2.0, 2.2], cost=10.0)
    assert share_to_reach(outcome([2.5, 2.2, 1.0], 6.0), theirs, "flops") == pytest.approx(12 / 30)
    assert share_to_reach(outcome([2.5, 2.3], 6.0), theirs, "flops") is None


@pytest.mark.usefixtures("with_data")
class TestText:
    """With the real text."""

    def test_the_parts_are_the_text(self):
        alphabet, text = characters.encoded()
        assert alphabet.startswith("\n !$&',-.3:;?ABC")
        assert len(text.learnt) == 1_003_854
        assert len(text.validation) == 55_770
        assert "".join(alphabet[i] for i in text.test[-12:].tolist()) == "art waking.\n"

    def test_a_run_grows_as_planned_and_counts_its_operations(self, tmp_path):
        config = Config(
            width=8, heads=2, context=8, layers=4, batch=2, steps=20, round_steps=2, validation_windows=2
        )  # fmt: skip
        result = TASK.train(TASK.create(tmp_path / "run", config))
        outcome = Outcome.read(tmp_path / "run")
        assert [line["depth"] for line in outcome.lines] == [1, 1, 2, 4, 4, 4, 4, 4, 4, 4]
        assert result["flops"] == pytest.approx(planned_flops(config))
        assert math.isfinite(result["test"])
        model = TASK.load(tmp_path / "run").model
        assert len(model.blocks) == 4
        assert model(torch.zeros(1, 8, dtype=torch.long)).shape == (1, 8, 65)
