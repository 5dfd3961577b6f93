"""Practices of training, each as a whole script around a small network; lines that are there because of gpf are marked.

A script returns its network, which must have grown, been pruned and been frozen by then; one that is refused returns
the error instead.
"""

import copy
import os
import pickle
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.utils import parametrizations

import gpf

Script = Callable[[], "gpf.GrowPruneFreeze | Exception | None"]

RULES = gpf.Rules(
    grow_patience=1, grow_threshold=100.0, max_depth=3, prune_patience=1, belief_threshold=2.0,
    saliency_threshold=0.05, freeze_patience=3, freeze_delta=10.0,
)  # fmt: skip
"""Rules under which six epochs see each kind of event: no improvement is enough, and every weight holds still."""
EPOCHS = range(6)
X = torch.randn(64, 6, generator=torch.Generator().manual_seed(0))
Y = torch.tanh(X[:, :3] * X[:, 3:])


def build() -> gpf.MLP:
    """The model of most scripts."""
    return gpf.MLP(6, 16, 3)


def loss_of(model: nn.Module) -> torch.Tensor:
    """Its loss on all data."""
    return nn.functional.mse_loss(model(X), Y)


def step(model: nn.Module, *optimizers: torch.optim.Optimizer) -> float:
    """One step of plain training."""
    loss = loss_of(model)
    for optimizer in optimizers:
        optimizer.zero_grad()
    loss.backward()
    for optimizer in optimizers:
        optimizer.step()
    return loss.item()


def optimizer_script(kind: str, **options: Any) -> Script:
    """Training with one of torch's optimizers."""

    def script() -> gpf.GrowPruneFreeze:
        model = build()
        optimizer = getattr(torch.optim, kind)(model.parameters(), lr=1e-2, **options)
        net = gpf.attach(model, optimizer, rules=RULES)  # gpf
        for _ in EPOCHS:
            loss = step(model, optimizer)
            net.end_epoch(loss)  # gpf
        return net

    return script


def lbfgs() -> Exception:
    """Refused: its history holds directions of the weights that are to be pruned."""
    model = build()
    try:
        gpf.attach(model, torch.optim.LBFGS(model.parameters()), rules=RULES)  # gpf
    except ValueError as error:
        return error
    raise AssertionError("LBFGS was accepted")


def muon_and_adamw() -> gpf.GrowPruneFreeze:
    """One optimizer for matrices, another one for the rest."""
    model = build()
    matrices = torch.optim.Muon([p for p in model.parameters() if p.ndim == 2], lr=1e-2)
    others = torch.optim.AdamW([p for p in model.parameters() if p.ndim != 2], lr=1e-2)
    net = gpf.attach(model, [matrices, others], rules=RULES)  # gpf
    for _ in EPOCHS:
        loss = step(model, matrices, others)
        net.end_epoch(loss)  # gpf
    return net


def accumulation_and_clipping() -> gpf.GrowPruneFreeze:
    """Four batches for each step, and gradients of norm one at most."""
    model = build()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    net = gpf.attach(model, optimizer, rules=RULES)  # gpf
    for _ in EPOCHS:
        optimizer.zero_grad()
        for x, y in zip(X.chunk(4), Y.chunk(4), strict=True):
            loss = nn.functional.mse_loss(model(x), y)
            (loss / 4).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        net.end_epoch(loss)  # gpf
    return net


def mixed_precision() -> gpf.GrowPruneFreeze:
    """Autocast, and a scaler that skips steps."""
    model = build()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cpu")
    net = gpf.attach(model, optimizer, rules=RULES)  # gpf
    for _ in EPOCHS:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = loss_of(model)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        net.end_epoch(loss)  # gpf
    return net


def other_dtypes() -> gpf.GrowPruneFreeze:
    """A model of bfloat16, grown, saved and loaded."""
    model = build().bfloat16()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    net = gpf.attach(model, optimizer, rules=RULES)  # gpf
    for _ in EPOCHS:
        loss = nn.functional.mse_loss(model(X.bfloat16()), Y.bfloat16())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        net.end_epoch(loss)  # gpf
    assert all(p.dtype == torch.bfloat16 for p in model.parameters())
    return net


def scheduler() -> gpf.GrowPruneFreeze:
    """A learning-rate schedule that is resumed from a checkpoint."""
    with tempfile.TemporaryDirectory() as folder:
        model = build()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=20)
        net = gpf.attach(model, optimizer, rules=RULES)  # gpf
        for _ in EPOCHS:
            loss = step(model, optimizer)
            schedule.step()
            net.end_epoch(loss)  # gpf
        net.save(f"{folder}/last", scheduler=schedule)  # gpf
        net = gpf.load(
            f"{folder}/last", build, scheduler=lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 1e-2, total_steps=20)
        )  # gpf
        assert net.schedulers[0].get_last_lr() == schedule.get_last_lr()
    return net


def moving_average() -> gpf.GrowPruneFreeze:
    """An average of the weights that is as deep as the network."""
    model = build()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    net = gpf.attach(model, optimizer, rules=RULES)  # gpf
    net.follow(average)  # gpf
    for _ in EPOCHS:
        loss = step(model, optimizer)
        average.update_parameters(model)
        net.end_epoch(loss)  # gpf
    averaged: Any = average.module
    assert len(averaged.layers) == net.depth
    return net


def values_from_outside() -> gpf.GrowPruneFreeze:
    """Noise on weights, state of the optimizer from before, weights of a submodule read in."""
    model = build()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    net = gpf.attach(model, optimizer, rules=RULES)  # gpf
    for _ in EPOCHS:
        saved, state = copy.deepcopy(model.layers[0].state_dict()), copy.deepcopy(optimizer.state_dict())
        step(model, optimizer)
        model.layers[0].load_state_dict(saved)
        if len(state["param_groups"][0]["params"]) == len(optimizer.param_groups[0]["params"]):
            optimizer.load_state_dict(state)
        for parameter in model.parameters():
            parameter.data.add_(0.01 * torch.randn_like(parameter))
        loss = step(model, optimizer)
        net.end_epoch(loss)  # gpf
    return net


def activation_checkpointing() -> gpf.GrowPruneFreeze:
    """Transformers' switch, which new blocks have too."""
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes: dict[str, Any] = {"n_positions": 8, "n_embd": 16, "n_layer": 1, "n_head": 2}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=13, bos_token_id=0, eos_token_id=0, **sizes))
    model.gradient_checkpointing_enable()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    tokens = torch.randint(0, 13, (8, 8))
    net = gpf.attach(model, optimizer, stack="transformer.h", rules=RULES)  # gpf
    for _ in EPOCHS:
        loss = model(tokens, labels=tokens, use_cache=False).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        net.end_epoch(loss)  # gpf
    assert all(block.gradient_checkpointing for block in model.transformer.h)
    return net


def compiled() -> gpf.GrowPruneFreeze:
    """torch.compile, which must compile again after a growth."""
    model: Any = torch.compile(build())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    net = gpf.attach(model, optimizer, rules=RULES)  # gpf
    for _ in EPOCHS:
        loss = step(model, optimizer)
        events = net.end_epoch(loss)  # gpf
        if any(event.structural for event in events):  # gpf
            model = net.renew(model)  # gpf
    torch.testing.assert_close(model(X), net.model(X))
    return net


def accelerated() -> gpf.GrowPruneFreeze:
    """Accelerate's wrapped optimizer."""
    from accelerate import Accelerator  # type: ignore[import-untyped]

    accelerator = Accelerator(cpu=True)
    model = build()
    model, optimizer = accelerator.prepare(model, torch.optim.Adam(model.parameters(), lr=1e-2))
    net = gpf.attach(model, optimizer, rules=RULES)  # gpf
    for _ in EPOCHS:
        loss = loss_of(model)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        net.end_epoch(loss)  # gpf
    return net


def lora() -> gpf.GrowPruneFreeze:
    """Adapters of PEFT, which new blocks have too; the base does not learn."""
    import peft
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes: dict[str, Any] = {
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
    }
    base = LlamaForCausalLM(LlamaConfig(vocab_size=13, **sizes))
    model = peft.get_peft_model(base, peft.LoraConfig(r=2, target_modules="all-linear"))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    tokens = torch.randint(0, 13, (8, 8))
    net = gpf.attach(model, optimizer, stack="base_model.model.model.layers", rules=RULES)  # gpf
    for _ in EPOCHS:
        loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        net.end_epoch(loss)  # gpf
    adapters = [{n for n, _ in layer.block.named_parameters() if "lora" in n} for layer in net.layers]
    assert adapters[0], "no adapters"
    assert all(names == adapters[0] for names in adapters)
    return net


def weight_norm() -> gpf.GrowPruneFreeze:
    """A parametrised weight is computed from others: it is not pruned, and the rest is."""
    model: Any = build()
    parametrizations.weight_norm(model.layers[0][0])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    net = gpf.attach(model, optimizer, block=model.make_block, rules=RULES)  # gpf
    for _ in EPOCHS:
        loss = step(model, optimizer)
        net.end_epoch(loss)  # gpf
    assert not net.layers[0].weights
    return net


def chosen_weights() -> gpf.GrowPruneFreeze:
    """Weights that the user does not want to be pruned."""
    model = build()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    net = gpf.attach(model, optimizer, rules=RULES, prunable=lambda name, p: p.shape == (16, 16))  # gpf
    for _ in EPOCHS:
        loss = step(model, optimizer)
        net.end_epoch(loss)  # gpf
    assert not net.layers[0].weights
    return net


def resumed() -> gpf.GrowPruneFreeze:
    """Saved in the middle, and loaded as if nothing had happened."""
    with tempfile.TemporaryDirectory() as folder:
        model = build()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        net = gpf.attach(model, optimizer, rules=RULES)  # gpf
        for epoch in EPOCHS:
            loss = step(net.model, net.optimizer)
            net.end_epoch(loss)  # gpf
            if epoch == 3:
                net.save(f"{folder}/last")  # gpf
                net = gpf.load(f"{folder}/last", build)  # gpf
    return net


def pickled() -> Exception:
    """Refused: hooks cannot be pickled, and without them pruned weights would come back."""
    model = build()
    net = gpf.attach(model, torch.optim.Adam(model.parameters(), lr=1e-2), rules=RULES)
    try:
        pickle.dumps(net)  # gpf
    except TypeError as error:
        return error
    raise AssertionError("a network was pickled")


def exported() -> gpf.GrowPruneFreeze:
    """What has been learnt, as ONNX and by torch.export."""
    model = build()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    net = gpf.attach(model, optimizer, rules=RULES)  # gpf
    for _ in EPOCHS:
        loss = step(model, optimizer)
        net.end_epoch(loss)  # gpf
    small = net.compact().eval()  # gpf
    program = torch.export.export(small, (X,))
    torch.testing.assert_close(program.module()(X), model(X))
    return net


def huggingface_trainer() -> gpf.GrowPruneFreeze:
    """Three lines beside a Trainer."""
    import transformers

    from gpf.network.integrations.huggingface import GrowPruneFreezeCallback  # gpf

    sizes: dict[str, Any] = {"n_positions": 8, "n_embd": 16, "n_layer": 1, "n_head": 2}
    model = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=13, bos_token_id=0, eos_token_id=0, **sizes)
    )
    rows = [{"input_ids": row, "labels": row} for row in torch.randint(0, 13, (32, 8))]
    callback = GrowPruneFreezeCallback("transformer.h", RULES)  # gpf
    with tempfile.TemporaryDirectory() as folder:
        options = transformers.TrainingArguments(
            folder, max_steps=12, eval_strategy="steps", eval_steps=2, save_strategy="no", report_to="none",
            disable_tqdm=True, dataloader_pin_memory=False, logging_strategy="no", learning_rate=1e-2, use_cpu=True,
        )  # fmt: skip
        trainer = transformers.Trainer(model, options, train_dataset=rows, eval_dataset=rows)
        trainer.add_callback(callback)  # gpf
        trainer.train()
    return callback.net


def lightning_trainer() -> gpf.GrowPruneFreeze:
    """Three lines beside a Trainer."""
    import lightning.pytorch as lightning
    from torch.utils.data import DataLoader, TensorDataset

    from gpf.network.integrations.lightning import GrowPruneFreezeCallback  # gpf

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = build()

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            return nn.functional.mse_loss(self.model(batch[0]), batch[1])

        def validation_step(self, batch: Any, index: int) -> None:
            self.log("val_loss", self.training_step(batch, index))

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters(), lr=1e-2)

    callback = GrowPruneFreezeCallback(stack="model.layers", rules=RULES, monitor="val_loss")  # gpf
    trainer = lightning.Trainer(
        max_epochs=len(EPOCHS), logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, accelerator="cpu",
        callbacks=[callback],  # gpf
    )  # fmt: skip
    loader = DataLoader(TensorDataset(X, Y), batch_size=32)
    trainer.fit(Module(), loader, loader)
    return callback.net


def stable_baselines() -> gpf.GrowPruneFreeze:
    """A policy network that grows."""
    import dataclasses

    from stable_baselines3 import PPO

    from gpf.network.integrations.sb3 import GrowPruneFreezeCallback, growing_policy  # gpf

    rules = dataclasses.replace(RULES, mode="max", grow_threshold=1e6)
    model = PPO(
        "MlpPolicy", "CartPole-v1", n_steps=128, n_epochs=2, device="cpu", seed=0,
        policy_kwargs=growing_policy(width=32),  # gpf
    )  # fmt: skip
    callback = GrowPruneFreezeCallback(stack="mlp_extractor.policy_net", rules=rules)  # gpf
    model.learn(128 * 10, callback=callback)
    return callback.net


# Two processes


def data_parallel() -> None:
    """DistributedDataParallel on two processes."""
    in_two_processes(_data_parallel)


def _data_parallel() -> gpf.GrowPruneFreeze:
    model: Any = nn.parallel.DistributedDataParallel(build())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    net = gpf.attach(model, optimizer, rules=RULES)  # gpf
    for _ in EPOCHS:
        loss = step(model, optimizer)
        events = net.end_epoch(loss)  # gpf
        if any(event.structural for event in events):  # gpf
            model = net.renew(model)  # gpf
    return net


def fully_sharded() -> None:
    """FSDP2 on two processes."""
    in_two_processes(_fully_sharded)


def _fully_sharded() -> gpf.GrowPruneFreeze:
    from torch.distributed.fsdp import fully_shard

    def sharded() -> Any:
        model = build()
        for block in model.layers:
            fully_shard(block)
        return fully_shard(model)

    model = sharded()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    net = gpf.attach(model, optimizer, block=build().make_block, rules=RULES)  # gpf
    for _ in EPOCHS:
        loss = step(model, optimizer)
        net.end_epoch(loss)  # gpf
    return net


def flat_parameters() -> Exception:
    """Refused: FSDP's first version glues all parameters of a block into one."""
    return in_two_processes(_flat_parameters)


def _flat_parameters() -> Exception:
    from torch.distributed.fsdp import FullyShardedDataParallel

    model = FullyShardedDataParallel(build(), device_id=torch.device("cpu"))
    try:
        gpf.attach(model, torch.optim.Adam(model.parameters(), lr=1e-2), rules=RULES)  # gpf
    except ValueError as error:
        return error
    raise AssertionError("FSDP was accepted")


def in_two_processes(script: Script) -> Any:
    """Run a script on two gloo processes, check its network in each, and pass on the error that it returned."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(  # type: ignore[attr-defined]
            _process, (port, script, folder), nprocs=2
        )
        refusal = Path(folder, "error")
        message = refusal.read_text() if refusal.exists() else ""
    return ValueError(message) if message else None


def _process(rank: int, port: int, script: Script, folder: str) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", rank=rank, world_size=2)
    torch.manual_seed(0)
    result = script()
    if isinstance(result, Exception):
        Path(folder, "error").write_text(str(result))
    else:
        check(result)
    torch.distributed.destroy_process_group()


def check(net: Any) -> None:
    """A network has seen each kind of event, and what is pruned is zero."""
    assert {event.kind for event in net.events} >= {"grown", "pruned", "frozen"}, net.events
    assert net.shape().pruned > 0
    net.model.eval()
    for layer in net.layers:
        for weight in layer.masked:
            value = weight.parameter.to_local() if hasattr(weight.parameter, "to_local") else weight.parameter
            assert not value[weight.pruned].any(), f"layer {layer}: pruned weights are back"


OPTIMIZERS: dict[str, Script] = {
    "SGD": optimizer_script("SGD"),
    "SGD with momentum and weight decay": optimizer_script("SGD", momentum=0.9, weight_decay=0.01),
    "Adam": optimizer_script("Adam"),
    "Adam, fused": optimizer_script("Adam", fused=True),
    "Adam, AMSGrad": optimizer_script("Adam", amsgrad=True),
    "AdamW": optimizer_script("AdamW"),
    "NAdam": optimizer_script("NAdam"),
    "RAdam": optimizer_script("RAdam"),
    "Adamax": optimizer_script("Adamax"),
    "Adadelta": optimizer_script("Adadelta"),
    "Adagrad": optimizer_script("Adagrad"),
    "Adafactor": optimizer_script("Adafactor"),
    "RMSprop": optimizer_script("RMSprop", momentum=0.5, centered=True),
    "Rprop": optimizer_script("Rprop"),
    "ASGD": optimizer_script("ASGD"),
}
"""torch's optimizers, which take the same lines each."""

PRACTICES: dict[str, Script] = {
    "Muon for matrices, AdamW for the rest": muon_and_adamw,
    "LBFGS": lbfgs,
    "gradient accumulation and clipping": accumulation_and_clipping,
    "autocast and `GradScaler`": mixed_precision,
    "models in bfloat16 or float64": other_dtypes,
    "learning-rate schedulers, saved and resumed": scheduler,
    "moving averages (`AveragedModel`)": moving_average,
    "weights and optimizer state written from outside": values_from_outside,
    "activation checkpointing": activation_checkpointing,
    "save and resume": resumed,
    "`pickle`, `copy.deepcopy`": pickled,
    "`torch.compile`": compiled,
    "`torch.export` of the trained model": exported,
    "accelerate": accelerated,
    "LoRA by PEFT": lora,
    "`weight_norm` and other parametrizations (not pruned)": weight_norm,
    "some weights never pruned": chosen_weights,
    "Hugging Face `Trainer`": huggingface_trainer,
    "Lightning": lightning_trainer,
    "stable-baselines3": stable_baselines,
    "DistributedDataParallel, two processes": data_parallel,
    "FSDP2 (`fully_shard`), two processes": fully_sharded,
    "FSDP1 (`FullyShardedDataParallel`)": flat_parameters,
}
"""Everything else, by the name that readers know."""
