"""Names that users type, known without torch and numba, to reject misspelled ones at once."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from gpf.cli.options import typed_values
from gpf.plume.scenario import Scenario
from gpf.settings import choose, unknown
from gpf.tasks.registry import REGISTRY
from gpf.zoo import NAMES, PREFIX, is_of_zoo, run_folder

POLICIES = (
    "random", "reactive", "cast-and-surge", "cast-and-surge-tuned", "bilateral", "infotaxis", "space-aware-infotaxis",
    "thompson", "greedy-belief", "particle-filter",
)  # fmt: skip
"""The names of `gpf.navigation.policies.POLICIES`."""
ZOO = tuple(PREFIX + name for name in NAMES)
"""The navigators that come with gpf."""
RULES = (
    "warmup", "grow_patience", "grow_threshold", "grow_at", "grow_slope", "start_depth", "grow_by", "grow_place",
    "grow_cooldown", "grow_init", "grow_trial", "grow_undoable", "max_depth", "mode", "weight_threshold",
    "activation_threshold", "belief_increment", "belief_fall", "prune_patience", "prune_to", "prune_from",
    "prune_until", "prune_steps", "regrow", "granularity", "remove_units",
    "unit_multiple", "belief_threshold", "saliency", "saliency_threshold", "freeze_patience",
    "freeze_delta", "freeze_fraction", "drop", "drop_window", "batch_decay",
)  # fmt: skip
"""The fields of `gpf.Rules`."""


def is_baseline(name: str) -> bool:
    """Whether a name is that of a policy that needs no learning, with its own parameters or those of a file."""
    return name.partition(":")[0] in POLICIES


def check_policy(name: str) -> None:
    """Refuse what is neither a baseline nor a folder."""
    if is_of_zoo(name):
        run_folder(name)  # refuses unknown names
    elif not is_baseline(name) and not Path(name).is_dir():
        raise ValueError(f"{unknown('policy', name, POLICIES)}, {', '.join(ZOO)}, or the folder of a run")
    file = name.partition(":")[2]
    if is_baseline(name) and file and not Path(file).is_file():
        raise ValueError(f"policy {name!r}: there is no file {file!r}; gpf tune writes one")


def check_scenarios(names: Iterable[str]) -> None:
    """Refuse scenarios that do not exist, or cannot be read."""
    for name in names:
        Scenario.of(name)


def check_training(arguments: Sequence[str]) -> None:
    """Refuse a misspelled task, scenario or rule of `gpf train` before its modules are imported."""
    named = bool(arguments) and not arguments[0].startswith("-")
    if named and ":" not in arguments[0]:
        choose("task", arguments[0], REGISTRY)
    if not named or arguments[0] == "plume":
        check_scenarios(typed_values(arguments, "--scenario")[:1])
    for rule in typed_values(arguments, "--rules")[::2]:
        choose("rule", rule, RULES)


def owners(flag: str) -> str:
    """Of an option of `gpf train` that some learners have: which; empty for an option that none has."""
    from gpf.navigation.config import LEARNERS, flat_settings

    name = flag.lstrip("-").removeprefix("no-").replace("-", "_")
    takers = [learner for learner in LEARNERS if name in flat_settings(learner)]
    if not takers or len(takers) == len(LEARNERS):
        return ""
    return f"{flag} is an option of --learner {' and '.join(takers)} only"
