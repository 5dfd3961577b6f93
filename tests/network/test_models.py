"""It attaches, unchanged, to models of every kind: each grows from 1 to 4 blocks, is pruned and frozen, and learns."""

import pytest
import torch
from helpers import assert_consistent
from torch import nn

import gpf

VOCABULARY, LENGTH = 17, 12


def mlp():
    model = gpf.MLP(6, 16, 3)
    x = torch.randn(64, 6)
    y = torch.tanh(x[:, :3] * x[:, 3:])
    return model, "layers", model.make_block, lambda: nn.functional.mse_loss(model(x), y)


def cnn():
    def block(depth):
        return nn.Sequential(nn.Conv2d(1 if depth == 0 else 6, 6, 3, padding=1), nn.ReLU())

    model = nn.Sequential(nn.Sequential(block(0)), nn.Flatten(), nn.Linear(6 * 64, 4))
    x, y = torch.randn(32, 1, 8, 8), torch.randint(0, 4, (32,))
    return model, "0", block, lambda: nn.functional.cross_entropy(model(x), y)


def transformer_encoder():
    def block(depth):
        return nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True, norm_first=True)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(VOCABULARY, 16)
            self.encoder = nn.TransformerEncoder(block(0), 1, enable_nested_tensor=False)
            self.head = nn.Linear(16, VOCABULARY)

        def forward(self, tokens):
            return self.head(self.encoder(self.embedding(tokens)))

    model = Model()
    tokens = torch.randint(0, VOCABULARY, (16, LENGTH))
    target = (tokens + tokens.flip(1)) % VOCABULARY
    return (
        model,
        "encoder.layers",
        block,
        lambda: nn.functional.cross_entropy(model(tokens).flatten(0, 1), target.flatten()),
    )


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel
    from transformers.models.gpt2.modeling_gpt2 import GPT2Block

    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=LENGTH,
        n_embd=16,
        n_layer=1,
        n_head=2,
        resid_pdrop=0,
        embd_pdrop=0,
        attn_pdrop=0,
    )
    model = GPT2LMHeadModel(config)
    tokens = torch.randint(0, VOCABULARY, (16, LENGTH))
    return model, "transformer.h", lambda depth: GPT2Block(config, depth), lambda: model(tokens, labels=tokens).loss


@pytest.mark.parametrize("make", [mlp, cnn, transformer_encoder, gpt2], ids=lambda make: make.__name__)
@pytest.mark.parametrize("saliency", ["magnitude", "obd"])
def test_a_model_grows_is_pruned_and_frozen_while_its_loss_falls(make, saliency):
    model, stack, block, loss_of = make()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    rules = gpf.Rules(
        saliency=saliency, saliency_threshold=0.02 if saliency == "magnitude" else 1e-9, belief_threshold=0.5,
        weight_threshold=0.05, belief_increment=0.1, prune_patience=1, grow_patience=None, freeze_patience=None,
    )  # fmt: skip
    net = gpf.attach(model, optimizer, stack=stack, block=block, rules=rules)

    def train(steps=15):
        for _ in range(steps):
            loss = loss_of()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        net.end_epoch(loss.item())
        return loss.item()

    losses = [train()]
    for depth in (2, 3, 4):
        before = loss_of().item()
        net.grow()
        assert loss_of().item() == pytest.approx(before, rel=1e-5, abs=1e-6)  # the function survives
        fresh = [weight.parameter.detach().clone() for weight in net.layers[-1].weights]
        losses.append(train())
        changed = [not torch.equal(w.parameter, f) for w, f in zip(net.layers[-1].weights, fresh, strict=True)]
        assert any(changed)  # and the new block learns from its first steps
        assert len(net.model.get_submodule(stack)) == depth
        assert_consistent(net)
    if net.shape().pruned == 0:
        net.prune()
    net.freeze(0)
    still = {name: p.clone() for name, p in net.layers[0].block.named_parameters()}
    losses.append(train())
    losses.append(train())
    assert_consistent(net)
    assert 0 < net.shape().pruned < net.shape().weights
    assert all(torch.equal(p, still[name]) for name, p in net.layers[0].block.named_parameters())
    assert losses == sorted(losses, reverse=True), losses
    assert losses[-1] < 0.8 * losses[0]


def test_depth_that_a_model_writes_down_is_kept_up_to_date():
    model, stack, block, _ = gpt2()
    net = gpf.attach(model, torch.optim.Adam(model.parameters()), stack=stack, block=block)
    net.grow()
    assert model.config.num_hidden_layers == 2
    out = model.generate(torch.tensor([[1, 2]]), max_length=6, do_sample=False, pad_token_id=0)
    assert out.shape == (1, 6)
    model, stack, block, _ = transformer_encoder()
    net = gpf.attach(model, torch.optim.Adam(model.parameters()), stack=stack, block=block)
    net.grow()
    assert model.encoder.num_layers == 2
