"""Characters of TinyShakespeare: the text, and runs that grow, shrink and count their FLOPs."""

import math

import pytest
import torch

from gpf.runs.folder import Outcome
from gpf.tasks import characters
from gpf.tasks.characters import TASK, Config

pytestmark = pytest.mark.usefixtures("one_torch_thread")

SMALL = {"width": 8, "heads": 2, "context": 8, "layers": 4, "batch": 2, "steps": 20, "round_steps": 2}


def test_flops_of_a_step_by_hand():
    """Width 8, context 4, batch 2: six a weight of a block and of the head, and attention's 12 T C for each token."""
    config = Config(kind="fixed", width=8, heads=2, context=4, batch=2)
    block = 6 * 12 * 8 * 8 + 12 * 4 * 8
    assert config.step_flops(3) == 8 * (3 * block + 6 * 65 * 8)


def test_heads_must_divide_the_width():
    with pytest.raises(ValueError, match="heads must be a divisor of the width, 96, got 5"):
        Config(heads=5).check()


@pytest.mark.usefixtures("with_data")
class TestText:
    """With the real text."""

    def test_the_parts_are_the_text(self):
        alphabet, text = characters.encoded()
        assert alphabet.startswith("\n !$&',-.3:;?ABC")
        assert len(text.learnt) == 1_003_854
        assert len(text.validation) == 55_770
        assert "".join(alphabet[i] for i in text.test[-12:].tolist()) == "art waking.\n"

    def test_a_run_grows_as_planned_and_counts_its_flops(self, tmp_path):
        config = Config(**SMALL, validation_windows=2, rules={"start_depth": "1", "grow_at": "[0.12, 0.3]"})
        result = TASK.train(TASK.create(tmp_path / "run", config))
        outcome = Outcome.read(tmp_path / "run")
        assert [line["depth"] for line in outcome.lines] == [1, 1, 2, 4, 4, 4, 4, 4, 4, 4]
        assert result["flops"] == pytest.approx(config.planned_flops())
        assert math.isfinite(result["test"])
        model = TASK.load(tmp_path / "run").model
        assert len(model.blocks) == 4
        assert model(torch.zeros(1, 8, dtype=torch.long)).shape == (1, 8, 65)

    def test_a_run_that_shrinks_costs_less_than_a_fixed_one_in_training_and_in_use(self, tmp_path):
        smaller = TASK.train(TASK.create(tmp_path / "a", Config(**SMALL, kind="smaller", validation_windows=2)))
        whole = TASK.train(TASK.create(tmp_path / "b", Config(**SMALL, kind="fixed", validation_windows=2)))
        assert smaller["flops"] < whole["flops"]
        assert smaller["inference_flops"] < whole["inference_flops"]
        assert smaller["size"] < whole["size"]
