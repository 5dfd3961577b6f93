"""Folders of small runs, written by what writes those of `gpf train`, within milliseconds."""

from functools import partial

import torch
from torch import nn

from gpf.network import MLP, Rules, attach
from gpf.runs.folder import Run, write_json
from gpf.spectra.recorder import Recorder, write_snapshot

ROUNDS = 12
STEPS = 100
"""Steps of a round."""
EVENTS = {
    3: ("grow", "the loss has not fallen for 2 epochs"),
    6: ("prune", "planned"),
    9: ("freeze", "weights are still"),
}


class MadeRun:
    """A run that goes on round by round: it grows after 3 rounds, is pruned after 6, and freezes after 9."""

    def __init__(self, folder, seed=900, width=10, **settings):
        torch.manual_seed(seed)
        self.run = Run.create(folder, {"task": "made", "config": {"seed": seed, "width": width, **settings}})
        model = MLP(6, width, 3)
        self.net = attach(model, torch.optim.Adam(model.parameters()), rules=Rules.fixed())
        self.net.watchers.append(Recorder(partial(write_snapshot, folder / "spectra")))
        self.done = 0

    def round(self):
        self.done += 1
        net, position = self.net, {"round": self.done, "step": STEPS * self.done}
        net.optimizer.zero_grad()
        net.model(torch.randn(8, 6)).square().mean().backward()
        net.optimizer.step()
        kind, reason = EVENTS.get(self.done, (None, None))
        events = []
        if kind == "grow":
            events = [net.grow(reason)]
        elif kind == "prune":
            events = [net.prune(reason, keep=0.5)]
        elif kind == "freeze":
            events = [net.freeze(0, reason)]
        loss = 1.0 / self.done
        layers = [{"name": f"layers.{n}.linear", "units": 10, "dead": 0.1 * n, "effective_rank": 5.0 + n}
                  for n in range(net.depth)]  # fmt: skip
        self.run.append(
            "metrics",
            [{**position, "seconds": 0.1 * self.done, "depth": net.depth, "density": net.density, "frozen": net.frozen,
              "loss": loss, "validation": {"success": 1.0 - loss} if self.done % 2 == 0 else None,
              "plasticity": layers}],
        )  # fmt: skip
        self.run.append("events", [{**position, **event.to_json()} for event in events])
        net.save(self.run.checkpoint("last"), extra={"run": self.run.id})
        return self

    def finish(self):
        while self.done < ROUNDS:
            self.round()
        write_json(self.run.folder / "result.json", {"step": STEPS * self.done, "loss": 1.0 / self.done})
        self.run.close()
        return self.run.folder


class Block(nn.Module):
    """A block with attention and two maps, as transformers have."""

    def __init__(self, width):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return x + self.down(torch.relu(self.up(x)))


class Transformer(nn.Module):
    """Two blocks between an embedding and a head; the stack is `transformer.h`."""

    def __init__(self, width=8):
        super().__init__()
        self.transformer = nn.ModuleDict(
            {"wte": nn.Embedding(20, width), "h": nn.ModuleList([Block(width), Block(width)])}
        )
        self.lm_head = nn.Linear(width, 20)


def save_transformer(folder):
    """A checkpoint of a model of one's own, which has grown by a block; no run folder is around it."""
    torch.manual_seed(900)
    model = Transformer()
    rules = Rules(grow_init="built")
    net = attach(
        model, torch.optim.Adam(model.parameters()), "transformer.h", block=lambda depth: Block(8), rules=rules
    )
    net.grow("asked for by the test")
    net.save(folder)
    return net
