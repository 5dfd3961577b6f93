"""The world model against plain arithmetic: embeddings, loss, cache, growth."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional

import gpf
from gpf.world_model.batches import Windows, passages
from gpf.world_model.imagination import Imagination, beginnings, coupled, draw, estimate_coupling, imagine
from gpf.world_model.model import WorldModel, next_token_loss, window
from gpf.world_model.sequences import (
    BOS_CODE,
    EOS_CODE,
    FIRST_SPECIAL,
    PAD_CODE,
    RESET_CODE,
    Episode,
    decode,
    encode,
    make_dataset,
    observation_tokens,
)

SIZES = (7, 7, 8)


def random_codes(count, steps, seed=0):
    """Histories that end with an action."""
    random = np.random.default_rng(seed)
    codes = np.full((count, 2 * steps + 1), BOS_CODE)
    codes[:, 1::2] = random.integers(392, size=(count, steps))
    codes[:, 2::2] = 392 + random.integers(6, size=(count, steps))
    return torch.from_numpy(codes)


def test_an_observation_is_the_sum_of_its_streams(model):
    table = model.table()
    for code in (0, 79, 391):
        left, right, wind = observation_tokens(np.array(code))
        wanted = model.left.weight[left] + model.right.weight[right] + model.wind.weight[wind]
        assert torch.equal(table[code], wanted)
    assert torch.equal(table[392 + 4], model.action.weight[4])
    assert torch.equal(table[RESET_CODE], model.special.weight[3])


def test_nothing_sees_what_comes_later(model):
    codes = random_codes(2, 6)
    changed = codes.clone()
    changed[:, 7:] = random_codes(2, 6, seed=1)[:, 7:]
    assert torch.equal(model(codes)[:, :7], model(changed)[:, :7])
    assert not torch.allclose(model(codes)[:, 7:], model(changed)[:, 7:])


def test_the_loss_is_the_papers(model):
    """Worked token by token: only observations are predicted, each from what stands before it, but not from PAD."""
    codes = random_codes(3, 5)
    codes[1, 0] = PAD_CODE
    codes[2, 6] = RESET_CODE  # in the place of an action
    logits = model(codes[:, :-1]).detach()
    totals, count = np.zeros(3), 0
    for row in range(3):
        for place in range(1, codes.shape[1]):
            if codes[row, place] >= 392 or codes[row, place - 1] == PAD_CODE:
                continue
            parts = logits[row, place - 1].split(SIZES)
            for stream, token in enumerate(observation_tokens(codes[row, place].numpy())):
                totals[stream] -= math.log(parts[stream].double().softmax(0)[token])
            count += 1
    losses, predicted = next_token_loss(logits, codes)
    assert int(predicted) == count == 14
    assert np.allclose(losses.numpy(), totals / count, atol=1e-5)


def test_before_it_learns_all_tokens_are_as_likely():
    codes = random_codes(2, 4)
    losses, _ = next_token_loss(WorldModel(16, 2, 1, 8)(codes[:, :-1]), codes)
    assert np.allclose(losses.detach().numpy(), [math.log(7), math.log(7), math.log(8)], atol=1e-6)


@pytest.mark.parametrize("chunks", [(1, 1, 1, 1), (2, 2), (1, 3), (4,)])
def test_with_a_cache_as_without(model, chunks):
    codes = random_codes(3, 6)
    full = model(codes)
    with torch.inference_mode():
        logits, cache = model.read(codes[:, :9], copies=2)
        assert torch.allclose(logits, full[:, 8], atol=1e-5)
        at = 9
        for size in chunks:
            new = codes[:, at : at + size].repeat_interleave(2, 0)
            at += size
            assert torch.allclose(model.extend(new, cache), full[:, at - 1].repeat_interleave(2, 0), atol=1e-5)
        assert cache.places == at


def test_copies_go_their_own_ways(model):
    codes = random_codes(2, 7)
    others = random_codes(2, 7, seed=1)
    with torch.inference_mode():
        _, cache = model.read(codes[:, :9], copies=2)
        new = torch.stack([codes[:, 9:13], others[:, 9:13]], dim=1).flatten(0, 1)
        got = model.extend(new, cache).unflatten(0, (2, 2))
        mixed = torch.cat([codes[:, :9], others[:, 9:13]], dim=1)
        assert torch.allclose(got[:, 0], model(codes[:, :13])[:, -1], atol=1e-5)
        assert torch.allclose(got[:, 1], model(mixed)[:, -1], atol=1e-5)


def test_imagined_with_the_cache_as_without(model):
    histories, actions = random_codes(3, 3)[:, :6], torch.from_numpy(np.random.default_rng(0).integers(6, size=(6, 5)))
    options = {"copies": 2, "coupling": 0.6, "temperature": 0.8}
    cached, plain = (
        imagine(model, histories, actions, cached=cached, generator=torch.Generator().manual_seed(0), **options)
        for cached in (True, False)
    )
    assert torch.equal(cached, plain)
    assert len(cached.unique()) > 5


def test_a_history_longer_than_the_context_is_refused_by_the_model_and_cut_by_a_window(model):
    long = random_codes(2, 12)
    with pytest.raises(ValueError, match=r"^history must have at most 17 codes, the context of 8 steps, got 25"):
        model(long)
    cut = window(long, 8)
    assert cut.shape == (2, 17)
    assert (cut[:, 0] == PAD_CODE).all()
    assert torch.equal(cut[:, 1:], long[:, -16:])
    ends_in_observation = window(long[:, :-1], 8)
    assert ends_in_observation.shape == (2, 16)
    assert (ends_in_observation[:, 1] < 392).all()
    for fits in (9, 16, 17):
        assert torch.equal(window(long[:, :fits], 8), long[:, :fits])
    model(cut)
    with pytest.raises(ValueError, match=r"^history must have at most 17 codes, .*, got 18"):
        model(long[:, :18])


def test_imagination_slides_over_its_context(model):
    """Many steps more than fit: the latest past is read anew, and what is imagined follows from it alone."""
    histories = random_codes(2, 12)[:, :-1]
    actions = torch.from_numpy(np.random.default_rng(0).integers(6, size=(4, 30)))
    imagination = Imagination(model, histories, 2, torch.Generator().manual_seed(0), temperature=0.0)
    seen = torch.stack([imagination.step(action) for action in actions.unbind(1)], 1)
    assert seen.shape == (4, 30)
    # The last one, from scratch: it was read with between half a context and a whole one.
    past = torch.empty(4, 60, dtype=torch.long)
    past[:, 0::2], past[:, 1::2] = 392 + actions, seen
    possible = set()
    for steps in range(4, 9):
        logits = model(window(past[:, :-1], steps))[:, -1]
        left, right, wind = (part.argmax(1) for part in logits.split(SIZES, dim=1))
        possible.add(tuple(((left * 7 + right) * 8 + wind).tolist()))
    assert tuple(seen[:, -1].tolist()) in possible


def test_the_past_is_read_anew_only_when_there_is_no_room_left(model, monkeypatch):
    """A context of 8 steps, of which half is kept: with the action that is taken these are 4, and 4 more fit."""
    read, readings = model.read, []
    monkeypatch.setattr(model, "read", lambda *arguments: readings.append(arguments) or read(*arguments))
    imagination = Imagination(model, random_codes(2, 12)[:, :-1])
    counts = []
    for _ in range(16):
        imagination.step(torch.zeros(2, dtype=torch.long))
        counts.append(len(readings))
    assert counts == [1] * 5 + [2] * 5 + [3] * 5 + [4]


def test_a_reset_begins_another_episode(model, monkeypatch):
    """The token RESET stands in the place of the action, for the lanes that are reset and for no others."""
    imagination = Imagination(model, beginnings(2), temperature=0.0)
    first = imagination.first()
    extend, read = model.extend, []
    monkeypatch.setattr(model, "extend", lambda codes, cache: read.append(codes) or extend(codes, cache))
    second = imagination.step(torch.tensor([1, 1]), torch.tensor([False, True]))
    assert torch.equal(read[0], torch.stack([first, torch.tensor([393, RESET_CODE])], 1))
    codes = torch.stack([torch.full((2,), BOS_CODE), first, torch.tensor([393, RESET_CODE])], 1)
    parts = model(codes)[:, -1].split(SIZES, dim=1)
    left, right, wind = (part.argmax(1) for part in parts)
    assert torch.equal(second, (left * 7 + right) * 8 + wind)


@pytest.mark.parametrize("code", [-1, FIRST_SPECIAL + 4])
def test_codes_that_do_not_exist_are_refused(model, code):
    with pytest.raises(ValueError, match=f"^code must be from 0 to 401, got {code}"):
        model(torch.tensor([[BOS_CODE, code]]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 10, "heads": 4}, "heads must be a divisor of the width, 10, got 4"),
        ({"depth": 0}, "depth must be at least 1, got 0"),
    ],
)
def test_impossible_models_are_refused(options, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        WorldModel(**options)


def test_growth_keeps_the_function_and_new_blocks_learn_at_once(model):
    codes = random_codes(4, 6)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    net = gpf.attach(model, optimizer, stack="blocks", rules=gpf.Rules(max_depth=4))
    before = model(codes)
    net.grow()
    assert len(model.blocks) == 3
    assert torch.allclose(model(codes), before, atol=1e-6)
    new = model.blocks[2]
    first = {name: parameter.detach().clone() for name, parameter in new.named_parameters()}
    for _ in range(2):
        optimizer.zero_grad()
        next_token_loss(model(codes[:, :-1]), codes)[0].sum().backward()
        optimizer.step()
    assert all(not torch.equal(parameter, first[name]) for name, parameter in new.named_parameters())


def test_tokens_are_drawn_as_often_as_they_are_likely():
    logits = torch.tensor([[0.0, 1.0, -1.0]])
    drawn = draw(logits.expand(40_000, 3), torch.rand(40_000, generator=torch.Generator().manual_seed(0)))
    assert torch.allclose(drawn.bincount() / 40_000, logits.softmax(1)[0], atol=0.01)


def test_coupling_changes_no_stream_and_is_found_again():
    logits = torch.zeros(20_000, 22)
    logits[:, 0] = logits[:, 7] = torch.linspace(0, 4, 20_000)  # from rare blanks to hardly anything else
    chances = coupled(torch.rand(3, 20_000, generator=torch.Generator().manual_seed(1)), 0.8)
    left, right, wind = (draw(part, c) for part, c in zip(logits.split(SIZES, dim=1), chances, strict=True))
    for stream, tokens in enumerate((left, right, wind)):
        share = logits.split(SIZES, dim=1)[stream].softmax(1).mean(0)
        assert torch.allclose(tokens.bincount() / 20_000, share, atol=0.012)
    assert estimate_coupling(logits, left, right) == pytest.approx(0.8, abs=0.05)
    alone = [draw(part, torch.rand(20_000)) for part in logits.split(SIZES, dim=1)[:2]]
    assert estimate_coupling(logits, *alone) == pytest.approx(0.0, abs=0.07)


def test_no_token_beyond_the_last_is_drawn():
    """Sums of shares are below 1 by rounding, and a chance may lie above them."""
    logits = torch.randn(20_000, 7, generator=torch.Generator().manual_seed(0))
    assert (logits.softmax(1).cumsum(1)[:, -1] < 1 - 2**-24).any()
    drawn = draw(logits, torch.full((20_000,), 1 - 2**-24))
    assert int(drawn.max()) == 6


def test_an_episode_as_long_as_a_window_is_one():
    def episode(steps):
        random = np.random.default_rng(0)
        return Episode(random.integers(0, 7, (steps + 1, 3)), random.integers(0, 6, steps))

    def windows(steps):
        return Windows(make_dataset([encode([episode(steps)])], np.zeros(steps), [0], [0], {}), 8)

    assert (windows(8).draw(20, (0,)).numpy() == encode([episode(8)])[:-1]).all()
    with pytest.raises(ValueError, match="^data must have more steps than the context of 8, got 7"):
        windows(7)


def test_windows_are_whole_and_the_same_for_the_same_seed(dataset):
    windows = Windows(dataset, 8)
    codes = windows.draw(500, (0, 1))
    assert torch.equal(codes, windows.draw(500, (0, 1)))
    assert not torch.equal(codes, windows.draw(500, (0, 2)))
    assert codes.shape == (500, 18)
    assert set(codes[:, 0].tolist()) == {BOS_CODE, PAD_CODE}
    assert 0.07 < (codes[:, 0] == BOS_CODE).float().mean() < 0.25
    assert (codes[:, 1::2] < 392).all()
    assert not (codes == EOS_CODE).any()
    after = codes[:, 2::2]
    assert ((after >= 392) & (after < FIRST_SPECIAL) | (after == RESET_CODE)).all()
    assert (after == RESET_CODE).any()


def test_passages_predict_every_observation_once_with_its_own_past(dataset):
    first, second = (dataset.sequence(n) for n in range(2))
    joined = encode([*decode(first), *decode(second)])  # with RESET in it, after which nothing is predicted
    sequences = [joined, *(dataset.sequence(n) for n in range(2, len(dataset)))]
    seen = []
    for codes, mask in passages(
        make_dataset(sequences, dataset.rewards, dataset.found[1:], dataset.behaviours[1:], {}), 8
    ):
        assert codes.shape[1] == mask.shape[1] + 1
        assert (codes[:, 1:][mask] < 392).all()
        actions = codes[:, :-1][mask]
        assert ((actions >= 392) & (actions < FIRST_SPECIAL)).all()
        later = mask.clone()
        later[codes[:, 0] == BOS_CODE] = False
        assert not later[:, :8].any()  # those that do not begin with the episode have half a window before them
        for row, places in zip(codes, mask, strict=True):
            seen += [tuple(row[max(1, at - 5) : at + 2].tolist()) for at in np.flatnonzero(places)]
    wanted = [
        tuple(one[max(1, at - 5) : at + 2].tolist())
        for one in sequences
        for at in np.flatnonzero((one >= 392) & (one < FIRST_SPECIAL))
    ]
    assert sorted(seen) == sorted(wanted)  # each once, with what stands before it


def test_attention_is_torchs(model):
    """A block, worked with softmax and a mask."""
    block, x = model.blocks[0], torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(0))
    q, k, v = block.qkv(block.before_attention(x)).unflatten(2, (3, 2, 8)).permute(2, 0, 3, 1, 4)
    scores = (q @ k.transpose(2, 3) / math.sqrt(8)).masked_fill(torch.ones(5, 5).triu(1).bool(), -math.inf)
    y = x + block.merge((scores.softmax(3) @ v).transpose(1, 2).flatten(2))
    wanted = y + block.down(functional.gelu(block.up(block.before_perceptron(y))))
    assert torch.allclose(block(x), wanted, atol=1e-5)
