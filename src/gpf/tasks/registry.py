"""The list of tasks, one line each."""

REGISTRY: dict[str, str] = {
    "plume": "gpf.tasks.plume:TASK",
    "shifting": "gpf.tasks.shifting:TASK",
    "federated": "gpf.tasks.federated:TASK",
    "federated-faults": "gpf.tasks.federated:FAULTS",
    "world": "gpf.tasks.world:TASK",
    "cifar10": "gpf.tasks.cifar10:TASK",
    "mspacman": "gpf.tasks.mspacman:TASK",
    "mspacman-longer": "gpf.tasks.mspacman:LONGER",
    "shakespeare": "gpf.tasks.shakespeare:TASK",
    "characters": "gpf.tasks.characters:TASK",
    "tokens": "gpf.tasks.characters:TOKENS",
    "images-residual": "gpf.tasks.images:RESIDUAL",
    "images-mlp": "gpf.tasks.images:MLP_TASK",
    "permuted-mnist": "gpf.tasks.drifting:PERMUTED_MNIST",
    "regression": "gpf.tasks.drifting:REGRESSION",
}
"""Where each task is declared; a task of your own is named by its reference, `module:name`, wherever these are."""
