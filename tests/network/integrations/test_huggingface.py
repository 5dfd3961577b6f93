"""Hugging Face's Trainer with a model that grows, prunes and freezes."""

import logging
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from helpers import assert_consistent, assert_same, snapshot
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
from transformers.models.gpt2.modeling_gpt2 import GPT2Block

import gpf
from gpf.network import CheckpointError
from gpf.network.integrations.huggingface import GrowPruneFreezeCallback, resume

BUSY = gpf.Rules(
    grow_patience=1, grow_threshold=9.0, max_depth=3, prune_patience=1, belief_threshold=2.0, saliency_threshold=0.005,
    freeze_patience=4, freeze_delta=9.0,
)  # fmt: skip
"""It grows, prunes and freezes within a few epochs."""


def gpt2(depth=1, dropout=0.1):
    torch.manual_seed(0)
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=11, n_positions=8, n_embd=8, n_layer=depth, n_head=2, bos_token_id=0, eos_token_id=0,
            resid_pdrop=dropout, embd_pdrop=dropout, attn_pdrop=dropout,
        )
    )  # fmt: skip


def samples(count=40, seed=1):
    tokens = torch.randint(0, 11, (count, 8), generator=torch.Generator().manual_seed(seed))
    return [{"input_ids": row, "labels": row} for row in tokens]


def trainer_of(folder, model=None, rules=BUSY, metric="eval_loss", callbacks=(), evaluation=None, **options):
    model = model or gpt2()
    options = {
        "max_steps": 14, "eval_strategy": "steps", "eval_steps": 2, "logging_steps": 2, "save_strategy": "steps",
        "save_steps": 4, "per_device_train_batch_size": 4, "learning_rate": 1e-2, "weight_decay": 0.01,
        "report_to": "none", "use_cpu": True, "disable_tqdm": True, "seed": 3, "dataloader_pin_memory": False,
        "lr_scheduler_type": "cosine", "warmup_steps": 3, **options,
    }  # fmt: skip
    callback = GrowPruneFreezeCallback("transformer.h", rules, lambda i: GPT2Block(model.config, i), metric)
    trainer = Trainer(
        model=model,
        args=TrainingArguments(str(folder), **options),
        train_dataset=samples(),
        eval_dataset=evaluation or samples(8, 2),
        callbacks=[callback, *callbacks],
    )
    return trainer, callback


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """A finished run that grew, pruned and froze, with its checkpoints."""
    torch.set_num_threads(1)
    trainer, callback = trainer_of(tmp_path_factory.mktemp("unbroken"))
    trainer.train()
    return trainer, callback


def test_a_model_grows_prunes_and_freezes_in_the_trainer(unbroken):
    trainer, callback = unbroken
    assert {event.kind for event in callback.net.events} == {"grown", "pruned", "frozen"}
    assert len(trainer.model.transformer.h) == trainer.model.config.n_layer == callback.net.depth == 3
    assert callback.net.epoch == 7  # evaluations
    assert_consistent(callback.net)


def test_depth_density_and_frozen_layers_are_in_the_log(unbroken):
    trainer, callback = unbroken
    entries = [entry for entry in trainer.state.log_history if "eval_loss" in entry]
    assert [entry["depth"] for entry in entries] == [1, 2, 3, 3, 3, 3, 3]
    assert entries[0]["density"] == 1.0
    assert entries[-1]["density"] == callback.net.density < 1.0
    assert entries[-1]["frozen"] == len(callback.net.frozen) > 0


@pytest.mark.parametrize("step", [4, 8, 12])
def test_resumed_training_equals_unbroken_training(unbroken, tmp_path, step):
    """At step 4 the model has two layers, at step 12 three, some of them frozen; 10 steps are an epoch of the data."""
    whole, callback = unbroken
    again, resumed = trainer_of(tmp_path)
    resume(again, Path(whole.args.output_dir) / f"checkpoint-{step}")
    assert_same(snapshot(resumed.net), snapshot(callback.net))
    assert list(map(str, resumed.net.events)) == list(map(str, callback.net.events))
    assert resumed.net.epoch == callback.net.epoch
    rates = [[e.get("learning_rate") for e in t.state.log_history if "learning_rate" in e] for t in (again, whole)]
    assert rates[0] == rates[1]


def test_the_checkpoints_tested_above_differ_in_depth_and_frozen_layers(unbroken):
    whole, _ = unbroken
    folders = [Path(whole.args.output_dir) / f"checkpoint-{step}" / "gpf" for step in (4, 8, 12)]
    nets = [gpf.load(folder, gpt2, lambda i: GPT2Block(gpt2().config, i)) for folder in folders]
    assert [net.depth for net in nets] == [2, 3, 3]
    assert [bool(net.frozen) for net in nets] == [False, False, True]


def test_the_last_checkpoint_is_the_default(unbroken, tmp_path):
    whole, callback = unbroken
    with pytest.raises(CheckpointError, match="there is no checkpoint in"):
        resume(trainer_of(tmp_path)[0])
    for step in (4, 12):
        name = f"checkpoint-{step}"
        shutil.copytree(Path(whole.args.output_dir) / name, tmp_path / name)
    again, resumed = trainer_of(tmp_path)
    resume(again)
    assert (again.state.global_step, again._initial_global_step) == (14, 12)
    assert_same(snapshot(resumed.net), snapshot(callback.net))


def test_to_resume_without_our_function_is_refused(unbroken, tmp_path):
    whole, _ = unbroken
    trainer, _ = trainer_of(tmp_path)
    with pytest.raises(CheckpointError, match=r"has 2 blocks and the model 1; resume with .*resume\(trainer"):
        trainer.train(resume_from_checkpoint=str(Path(whole.args.output_dir) / "checkpoint-4"))
    fixed, _ = trainer_of(tmp_path, rules=gpf.Rules.fixed(), max_steps=4)
    fixed.train()
    trainer, _ = trainer_of(tmp_path, max_steps=6)
    with pytest.raises(CheckpointError, match="masks, beliefs and counters are not restored; resume with"):
        trainer.train(resume_from_checkpoint=True)


def test_what_cannot_be_resumed_is_refused(unbroken, tmp_path):
    whole, _ = unbroken
    checkpoint = Path(whole.args.output_dir) / "checkpoint-4"
    with pytest.raises(ValueError, match="must be a new one that makes its optimizer itself"):
        resume(whole, checkpoint)
    with pytest.raises(CheckpointError, match="the folder gpf is missing"):
        resume(trainer_of(tmp_path)[0], tmp_path)
    with pytest.raises(CheckpointError, match="must have at most 2 blocks, as many as were saved, got 3"):
        resume(trainer_of(tmp_path, model=gpt2(depth=3))[0], checkpoint)
    plain = Trainer(model=gpt2(), args=TrainingArguments(str(tmp_path), report_to="none", use_cpu=True))
    with pytest.raises(ValueError, match="must have one GrowPruneFreezeCallback, got 0"):
        resume(plain, checkpoint)


@pytest.mark.parametrize("step", [4, 8])
def test_a_model_of_its_final_depth_is_trained_faster_and_resumed(tmp_path, step):
    """Eight blocks are cut to two; they double after 37.5 and 75 % of 14 steps, at the evaluations after 6 and 12."""
    whole, callback = trainer_of(tmp_path / "whole", gpt2(8, dropout=0.0), rules="faster")
    whole.train()
    depths = [entry["depth"] for entry in whole.state.log_history if "depth" in entry]
    assert depths == [2, 2, 4, 4, 4, 8, 8]
    assert whole.model.config.n_layer == 8
    again, resumed = trainer_of(tmp_path / "again", gpt2(8, dropout=0.0), rules="faster")
    resume(again, tmp_path / "whole" / f"checkpoint-{step}")
    assert_same(snapshot(resumed.net), snapshot(callback.net))


def test_gated_blocks_are_resumed_too(tmp_path):
    rules = gpf.Rules(grow_patience=2, grow_threshold=9.0, max_depth=3, grow_init="gated", freeze_patience=None)
    whole, callback = trainer_of(tmp_path / "whole", rules=rules)
    whole.train()
    assert callback.net.depth == 3
    again, resumed = trainer_of(tmp_path / "again", rules=rules)
    resume(again, tmp_path / "whole" / "checkpoint-8")
    assert_same(snapshot(resumed.net), snapshot(callback.net))


def test_rules_that_do_nothing_change_nothing(tmp_path):
    """Against the Trainer alone; weights, moments and learning rates are the same."""
    rules = gpf.Rules.fixed()
    watched, _ = trainer_of(tmp_path, rules=rules, gradient_accumulation_steps=2, max_grad_norm=0.1)
    watched.train()
    alone, _ = trainer_of(tmp_path, rules=rules, gradient_accumulation_steps=2, max_grad_norm=0.1)
    alone.remove_callback(GrowPruneFreezeCallback)
    alone.train()
    for name, tensor in alone.model.state_dict().items():
        assert torch.equal(watched.model.state_dict()[name], tensor), name


@pytest.mark.parametrize("options", [{"gradient_accumulation_steps": 2, "max_grad_norm": 0.01}, {"bf16": True}])
def test_accumulation_clipping_and_bfloat16_work(tmp_path, options):
    trainer, callback = trainer_of(tmp_path, **options)
    trainer.train()
    assert callback.net.depth == 3
    assert_consistent(callback.net)


def test_new_blocks_are_checkpointed_like_the_first_one(tmp_path):
    """Which saves memory and changes no gradient."""
    options = {"max_steps": 6, "rules": BUSY, "model": gpt2(dropout=0.0)}
    trainer, callback = trainer_of(tmp_path, gradient_checkpointing=True, **options)
    trainer.train()
    assert [layer.block.gradient_checkpointing for layer in callback.net.layers] == [True] * 3
    plain, other = trainer_of(tmp_path, **options | {"model": gpt2(dropout=0.0)})
    plain.train()
    assert [layer.block.gradient_checkpointing for layer in other.net.layers] == [False] * 3
    for name, tensor in plain.model.state_dict().items():
        assert torch.allclose(trainer.model.state_dict()[name], tensor, atol=1e-5), name


def test_the_training_loss_is_a_metric_too(tmp_path):
    seen = []

    class Log(TrainerCallback):
        def on_log(self, args, state, control, logs=None, **kwargs):
            seen.extend([logs["loss"]] if "loss" in logs else [])

    trainer, callback = trainer_of(tmp_path, metric="loss", callbacks=[Log()], eval_strategy="no")
    trainer.train()
    assert callback.net.epoch == len(seen) == 7
    assert callback.net.plateau.window[-1] == seen[-1]


def test_evaluations_before_and_after_training_do_not_count(tmp_path):
    trainer, callback = trainer_of(tmp_path, eval_on_start=True, max_steps=4)
    trainer.evaluate()
    trainer.train()
    trainer.evaluate()
    assert callback.net.epoch == 2


def test_training_twice_goes_on_with_the_same_network(tmp_path):
    trainer, callback = trainer_of(tmp_path, max_steps=4)
    trainer.train()
    first = callback.net
    trainer.train()
    assert callback.net is first
    assert callback.net.epoch == 4


def test_a_metric_that_is_not_measured_is_refused(tmp_path):
    trainer, _ = trainer_of(tmp_path, metric="eval_accuracy")
    with pytest.raises(ValueError, match="metric must be one of .*eval_loss.*, got 'eval_accuracy'"):
        trainer.train()
    trainer, _ = trainer_of(tmp_path, metric="accuracy")
    with pytest.raises(ValueError, match="metric must be one of .*learning_rate, loss.*, got 'accuracy'"):
        trainer.train()
    with pytest.raises(ValueError, match="eval_strategy must be 'steps' or 'epoch', because the metric is 'eval_loss'"):
        trainer_of(tmp_path, eval_strategy="no")
    with pytest.raises(ValueError, match="logging_strategy must be 'steps' or 'epoch', because the metric is 'loss'"):
        trainer_of(tmp_path, metric="loss", logging_strategy="no")


def test_one_of_several_evaluation_sets_may_have_the_metric(tmp_path):
    sets = {"a": samples(8, 2), "b": samples(8, 3)}
    for metric in ("eval_a_loss", "eval_b_loss"):
        trainer, callback = trainer_of(tmp_path, metric=metric, evaluation=sets, max_steps=4)
        trainer.train()
        assert callback.net.epoch == 2


def test_the_best_model_at_the_end_has_the_depth_that_it_had(tmp_path):
    """Random tokens cannot be learned, so the first checkpoint, of one layer, is the best."""
    best = {}

    class Keep(TrainerCallback):
        def on_save(self, args, state, control, model=None, **kwargs):
            best.setdefault("state", {name: tensor.clone() for name, tensor in model.state_dict().items()})

    trainer, callback = trainer_of(
        tmp_path, callbacks=[Keep()], max_steps=8, save_steps=2, load_best_model_at_end=True,
    )  # fmt: skip
    trainer.train()
    assert trainer.state.best_model_checkpoint.endswith("checkpoint-2")
    assert max(entry.get("depth", 0) for entry in trainer.state.log_history) == 3
    assert callback.net.depth == len(trainer.model.transformer.h) == trainer.model.config.n_layer == 1
    assert trainer.model.state_dict().keys() == best["state"].keys()
    for name, tensor in trainer.model.state_dict().items():
        assert torch.equal(tensor, best["state"][name]), name
    assert_consistent(callback.net)


def test_a_grown_model_can_be_loaded_by_transformers_alone(unbroken, tmp_path):
    trainer, _ = unbroken
    trainer.save_model(tmp_path)
    model = GPT2LMHeadModel.from_pretrained(tmp_path).eval()
    tokens = torch.arange(8)[None]
    with torch.no_grad():
        assert torch.equal(model(tokens).logits, trainer.model.eval()(tokens).logits)


def test_events_are_logged(tmp_path, caplog):
    trainer, callback = trainer_of(tmp_path, max_steps=6)
    with caplog.at_level(logging.INFO, "gpf.network.integrations.huggingface"):
        trainer.train()
    assert [r.message for r in caplog.records if r.name.startswith("gpf")] == list(map(str, callback.net.events))


def test_compiled_models_are_refused(tmp_path):
    with pytest.raises(ValueError, match="torch_compile must be False, got True"):
        trainer_of(tmp_path, torch_compile=True)


def test_the_library_needs_no_framework():
    code = "import sys, gpf.network; print(*{'transformers', 'lightning', 'stable_baselines3'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == ""


def test_without_transformers_the_error_says_what_to_install(monkeypatch):
    monkeypatch.delitem(sys.modules, "gpf.network.integrations.huggingface")
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ImportError, match="pip install transformers accelerate"):
        import gpf.network.integrations.huggingface  # noqa: F401
