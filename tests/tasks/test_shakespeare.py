"""GPT-2 on TinyShakespeare: the loss is torch's, blocks that grow learn at once, samples are what the model says."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

import gpf
from gpf.data import gpt2_encoding, tinyshakespeare
from gpf.tasks import shakespeare
from gpf.tasks.shakespeare import GPT, TASK, linear_cross_entropy

pytestmark = pytest.mark.usefixtures("one_torch_thread")


@settings(max_examples=30, deadline=None)
@given(rows=st.integers(1, 150), width=st.integers(1, 9), vocabulary=st.integers(2, 40), seed=st.integers(0, 99))
def test_the_loss_and_its_gradients_are_those_of_cross_entropy(rows, width, vocabulary, seed):
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, width, generator=random, dtype=torch.double, requires_grad=True)
    weight = (5 * torch.randn(vocabulary, width, generator=random, dtype=torch.double)).requires_grad_()
    targets = torch.randint(vocabulary, (rows,), generator=random)
    ours = linear_cross_entropy(x, weight, targets)
    found = torch.autograd.grad(3.0 * ours, (x, weight))
    theirs = functional.cross_entropy(x @ weight.T, targets)
    wanted = torch.autograd.grad(3.0 * theirs, (x, weight))
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(found, wanted)
    with torch.inference_mode():
        torch.testing.assert_close(linear_cross_entropy(x, weight, targets), theirs.detach())


def small(depth=2):
    return GPT(width=16, heads=2, depth=depth, context=12, vocabulary=50)


def test_the_model_s_loss_is_that_of_its_logits():
    model, tokens = small(), torch.randint(50, (3, 13))
    logits = model(tokens[:, :-1])
    torch.testing.assert_close(
        model.loss(tokens), functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    )


def test_what_comes_later_is_not_seen():
    model, tokens = small(), torch.randint(50, (2, 12))
    changed = tokens.clone()
    changed[:, 7:] = (changed[:, 7:] + 1) % 50
    torch.testing.assert_close(model(tokens)[:, :7], model(changed)[:, :7])
    assert not torch.allclose(model(tokens)[:, 7:], model(changed)[:, 7:])


def test_a_text_longer_than_the_context_is_refused():
    with pytest.raises(ValueError, match="at most 12, the context, got 13"):
        small()(torch.zeros(1, 13, dtype=torch.long))


def test_a_grown_block_changes_nothing_at_first_and_learns_from_its_first_step():
    model = small(depth=1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    net = gpf.attach(model, optimizer, stack="blocks", rules=gpf.Rules())
    tokens = torch.randint(50, (4, 13))
    for _ in range(3):
        optimizer.zero_grad()
        model.loss(tokens).backward()
        optimizer.step()
    before = model(tokens[:, :-1]).detach()
    net.grow()
    torch.testing.assert_close(model(tokens[:, :-1]).detach(), before)

    def step():
        was = {name: p.detach().clone() for name, p in model.blocks[1].named_parameters()}
        optimizer.zero_grad()
        model.loss(tokens).backward()
        optimizer.step()
        return {name for name, p in model.blocks[1].named_parameters() if not torch.equal(p, was[name])}

    assert {"merge.weight", "merge.bias", "down.weight", "down.bias"} <= step()  # what was zero
    assert step() == {name for name, _ in model.blocks[1].named_parameters()}  # then everything


def test_with_the_cache_as_without_it():
    model, tokens = small(), torch.randint(50, (1, 12))
    model.eval()
    with torch.inference_mode():
        logits, cache = model.read(tokens[:, :5], 7)
        torch.testing.assert_close(logits, model(tokens[:, :5])[:, -1])
        for n in range(5, 12):
            torch.testing.assert_close(model.extend(tokens[:, n : n + 1], cache), model(tokens[:, : n + 1])[:, -1])


@pytest.mark.usefixtures("with_data")
class TestText:
    """With the real text and vocabulary."""

    def test_the_parts_are_the_text(self):
        text = shakespeare.three_parts()
        encoding = gpt2_encoding()
        assert len(text.learnt) == 301_966
        assert len(text.validation) + len(text.test) == 36_059
        whole = encoding.decode(torch.cat([text.learnt, text.validation, text.test]).tolist())
        assert whole == tinyshakespeare()
        lengths = [
            len(part) * shakespeare.characters_to_a_token(part) for part in (text.learnt, text.validation, text.test)
        ]
        assert sum(lengths) == pytest.approx(len(tinyshakespeare()))

    def test_a_sample_goes_on_from_its_prompt_for_longer_than_the_context(self, tmp_path):
        config = shakespeare.Config(
            width=8, heads=2, context=8, layers=2, batch=2, steps=2, round_steps=2, validation_windows=2,
            test_tokens=500,
        )  # fmt: skip
        folder = tmp_path / "run"
        result = TASK.train(TASK.create(folder, config))
        characters = len(gpt2_encoding().decode(shakespeare.three_parts().test[:500].tolist()))
        assert result["test_a_character"] == pytest.approx(result["test"] * 500 / characters)
        said = shakespeare.sample(folder, "ROMEO:", 40, 1.0, 0)
        assert said.startswith("ROMEO:")
        assert (
            said == shakespeare.sample(folder, "ROMEO:", 40, 1.0, 0) != shakespeare.sample(folder, "ROMEO:", 40, 1.0, 1)
        )
        model = TASK.load(folder).model.eval()
        tokens = gpt2_encoding().encode_ordinary("ROMEO:")
        with torch.inference_mode():
            while len(tokens) < 8:
                tokens.append(int(model(torch.tensor([tokens]))[0, -1].argmax()))
        greedy = shakespeare.sample(folder, "ROMEO:", 8 - len(gpt2_encoding().encode_ordinary("ROMEO:")), 0.0, 0)
        assert greedy == gpt2_encoding().decode(tokens)
        for wrong, message in (
            ({"tokens": 0}, "tokens must be at least 1, got 0"),
            ({"temperature": -1.0}, "temperature must be at least 0, got -1.0"),
        ):
            with pytest.raises(ValueError, match=message):
                shakespeare.sample(folder, "", **{"tokens": 1, "temperature": 1.0, "seed": 0, **wrong})

    def test_all_of_the_last_part_is_reported_on_unless_told_otherwise(self):
        assert shakespeare.Config().test_tokens is None
        test = shakespeare.three_parts().test
        assert len(test) == 18_030
        assert len(gpt2_encoding().decode(test.tolist())) == 55_897


def test_a_round_of_the_language_model_is_a_hundred_steps():
    config = shakespeare.Config()
    assert (config.round_steps, config.validation_windows) == (100, 64)
