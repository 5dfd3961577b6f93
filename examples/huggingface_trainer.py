"""A GPT-2 of one block that grows in Hugging Face's Trainer.

python examples/huggingface_trainer.py [--steps 300] [--out DIR] [--quick]

Each token is the sum of the two before it, modulo 13. Prints what grew, and the loss on new sequences before and after.
Needs: transformers accelerate
"""

import argparse
import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import gpf
from gpf.network.integrations.huggingface import GrowPruneFreezeCallback


def sequences(count: int, seed: int) -> list[dict[str, torch.Tensor]]:
    """Sequences of 16 tokens, from random pairs."""
    rows = torch.randint(0, 13, (count, 16), generator=torch.Generator().manual_seed(seed))
    for i in range(2, 16):
        rows[:, i] = (rows[:, i - 1] + rows[:, i - 2]) % 13
    return [{"input_ids": row, "labels": row} for row in rows]


def main() -> None:
    """Train, and say what happened."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--out", default=tempfile.mkdtemp(), help="where the Trainer writes its checkpoints")
    parser.add_argument("--quick", action="store_true", help="60 steps")
    arguments = parser.parse_args()
    steps = 60 if arguments.quick else arguments.steps
    torch.set_num_threads(1)  # fastest for a small network
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=13, n_positions=16, n_embd=32, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
    model = GPT2LMHeadModel(config)
    rules = gpf.Rules(grow_patience=2, grow_threshold=0.15, max_depth=3, prune_patience=3)
    callback = GrowPruneFreezeCallback("transformer.h", rules)
    options = TrainingArguments(
        arguments.out, max_steps=steps, per_device_train_batch_size=32, learning_rate=3e-3,
        eval_strategy="steps", eval_steps=steps // 15, save_steps=steps, report_to="none",
        disable_tqdm=True, dataloader_pin_memory=False, logging_strategy="no",
    )  # fmt: skip
    trainer = Trainer(
        model, options, train_dataset=sequences(2000, 0), eval_dataset=sequences(200, 1), callbacks=[callback]
    )
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    print(*callback.net.events, callback.net, sep="\n")
    print(f"loss on new sequences: {before:.3f} before, {trainer.evaluate()['eval_loss']:.3f} after")


if __name__ == "__main__":
    main()
