"""A small transformer that is built with four blocks, starts training with two, and doubles its depth on schedule.

python examples/growing_transformer.py [--steps 600] [--quick]

Each token is the sum of the two before it, modulo 13. Compares loss and training time with the fixed depth.
"""

import argparse
import time

import torch
from torch import Tensor, nn

import gpf

TOKENS, LENGTH, WIDTH = 13, 16, 32


class Model(nn.Module):
    """A decoder-only transformer of four blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.position = nn.Embedding(TOKENS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, 0.0, batch_first=True, norm_first=True) for _ in range(4)
        )
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, TOKENS))

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of the next token: (batch, time) to (batch, time, TOKENS)."""
        length = tokens.shape[1]
        causal = nn.Transformer.generate_square_subsequent_mask(length)
        x = self.embedding(tokens) + self.position.weight[:length]
        for block in self.blocks:
            x = block(x, src_mask=causal, is_causal=True)
        return self.head(x)


def sequences(count: int, generator: torch.Generator) -> Tensor:
    """Random first tokens; each of the others is the sum of the two before it."""
    tokens = torch.randint(0, TOKENS, (count, LENGTH + 1), generator=generator)
    for i in range(2, LENGTH + 1):
        tokens[:, i] = (tokens[:, i - 1] + tokens[:, i - 2]) % TOKENS
    return tokens


def loss_of(model: nn.Module, tokens: Tensor) -> Tensor:
    """Cross-entropy of the next token."""
    return nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


def train(steps: int, rules: gpf.Rules | str) -> None:
    """Train with these rules, and print what happened."""
    torch.manual_seed(0)
    model, generator = Model(), torch.Generator().manual_seed(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    net = gpf.attach(model, optimizer, stack="blocks", rules=rules, steps=steps)
    began, start = net.depth, time.perf_counter()
    for step in range(1, steps + 1):
        loss = loss_of(model, sequences(32, generator))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % (steps // 20) == 0:  # end epochs often, so that growth comes on time
            for event in net.end_epoch(loss.item()):
                print(f"  step {step}: {event}")
    seconds = time.perf_counter() - start
    with torch.no_grad():
        validation = loss_of(model, sequences(500, torch.Generator().manual_seed(1))).item()
    print(f"{began} to {net.depth} blocks: validation loss {validation:.3f}, {seconds:.1f} s")


def main() -> None:
    """Train once with growth and once without."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--quick", action="store_true", help="100 steps, which is too short to learn")
    arguments = parser.parse_args()
    steps = 100 if arguments.quick else arguments.steps
    train(steps, "faster")
    train(steps, gpf.Rules.fixed())


if __name__ == "__main__":
    torch.set_num_threads(1)  # fastest for a small network
    main()
