"""Models inside DistributedDataParallel and torch.compile."""

from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from gpf.network.layer import Layer


def unwrap(model: nn.Module) -> nn.Module:
    """The model itself, without the wrappers around it."""
    while True:
        if isinstance(model, DistributedDataParallel):
            model = model.module
        elif hasattr(model, "_orig_mod"):  # torch.compile
            model = model._orig_mod  # type: ignore[assignment]
        else:
            return model


def is_distributed(model: nn.Module) -> bool:
    """Whether DistributedDataParallel is among the wrappers."""
    while not isinstance(model, DistributedDataParallel):
        if not hasattr(model, "_orig_mod"):
            return False
        model = model._orig_mod  # type: ignore[assignment]
    return True


def renew(model: nn.Module) -> Any:
    """The same wrappers around a model whose structure has changed.

    DistributedDataParallel collects its parameters once and would neither see new ones nor miss frozen ones;
    torch.compile would run what it compiled before. Call it after every event that is `structural`. Communication hooks
    and mixed precision of DistributedDataParallel are not carried over: register them again.
    """
    if isinstance(model, DistributedDataParallel):
        # Naming its default would be deprecated.
        buffers: dict[str, Any] = {} if model.broadcast_buffers else {"broadcast_buffers": False}
        return DistributedDataParallel(
            renew(model.module),
            device_ids=model.device_ids,
            output_device=model.output_device,
            process_group=model.process_group,
            find_unused_parameters=model.find_unused_parameters,
            gradient_as_bucket_view=model.gradient_as_bucket_view,
            bucket_cap_mb=model.bucket_bytes_cap / 2**20,
            static_graph=model.static_graph,
            **buffers,
        )
    if hasattr(model, "_orig_mod"):
        torch.compiler.reset()
        return type(model)(renew(model._orig_mod), model.dynamo_ctx)  # type: ignore[arg-type]
    return model


def mean_over_processes(value: float, device: torch.device) -> float:
    """The mean of a number over all processes."""
    total = torch.tensor(value, dtype=torch.float64, device=device)
    torch.distributed.all_reduce(total)
    return float(total) / torch.distributed.get_world_size()


def share_activation(layer: Layer) -> None:
    """Let all processes have the sum of all activations of a layer, those of a process without any included."""
    if layer.activation is None or layer.activation_count is None:
        return
    total = torch.cat([layer.activation.double(), layer.activation_count.double().view(1)])
    torch.distributed.all_reduce(total)
    layer.activation.copy_(total[:-1])
    layer.activation_count.copy_(total[-1])


def share_gradients(layer: Layer) -> None:
    """Let all processes have the sum of the gradients that were gathered of a layer's pruned weights."""
    for weight in layer.weights:
        if weight.dense is not None:
            torch.distributed.all_reduce(weight.dense)


def collect_activation(layer: Layer) -> None:
    """Gather all activations of a layer in the first process, for its checkpoint; their sum stays."""
    share_activation(layer)
    if torch.distributed.get_rank() != 0:
        layer.forget_activations()
