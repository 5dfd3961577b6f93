"""The commands. Each is a dataclass of its options, in a module that is imported when the command is asked for."""

import os
import sys
from collections.abc import Sequence
from typing import Any

COMMANDS: dict[str, tuple[str, str]] = {
    "train": ("gpf.cli.train:train", "train a navigator, or a network on another task"),
    "evaluate": ("gpf.cli.evaluate:Evaluate", "measure how well a policy finds the source"),
    "compare": ("gpf.cli.compare:Compare", "compare agents, or the variants of a task, over many seeds"),
    "sweep": ("gpf.cli.compare:Sweep", "search for good settings of a task"),
    "reproduce": ("gpf.cli.compare:Reproduce", "repeat the paper's experiment, and judge its claims"),
    "continual": ("gpf.cli.compare:Continual", "compare methods in worlds that change without notice"),
    "ablate": ("gpf.cli.compare:Ablate", "train without groups of memory features, to see what each is worth"),
    "page": ("gpf.cli.compare:Page", "write result pages again, from their numbers"),
    "report": ("gpf.cli.evaluate:Report", "write a run's report, one HTML file"),
    "spectra": ("gpf.cli.evaluate:Spectra", "show what events did to the spectra of a run's network"),
    "sample": ("gpf.cli.evaluate:Sample", "let a language model continue a text"),
    "world": ("gpf.cli.world:World", "collect sequences of tokens, evaluate world models, plan and dream in them"),
    "scenario": ("gpf.cli.evaluate:ShowScenario", "print a scenario as JSON"),
    "compile": ("gpf.cli.evaluate:Compile", "compile everything now, so that later commands start at once"),
}
"""By name: where a command is, and what it does."""


def main() -> None:
    """Run the command that the arguments name; a user's mistake ends in one line and exit code 2."""
    try:
        _run(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read our output has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (ValueError, RuntimeError, ArithmeticError, OSError, MemoryError) as error:
        print(f"gpf: {' '.join(str(error).split()) or type(error).__name__}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt as interruption:
        print(f"gpf: interrupted{f'; {interruption}' if str(interruption) else ''}", file=sys.stderr)
        sys.exit(130)


def _run(arguments: Sequence[str]) -> None:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage())
        return
    from gpf.runs.executors import find
    from gpf.settings import choose

    name = choose("command", arguments[0], COMMANDS)
    command: Any = find(COMMANDS[name][0])
    if isinstance(command, type):
        parse(command, arguments[1:], f"gpf {name}")()
    else:
        command(arguments[1:])


def parse(command: Any, arguments: Sequence[str], name: str) -> Any:
    """A command with the options that were given."""
    import tyro

    return tyro.cli(command, args=list(arguments), prog=name)


def usage() -> str:
    """What `gpf --help` says."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {about}" for name, (_, about) in COMMANDS.items()]
    return "\n".join(
        [
            "usage: gpf COMMAND [OPTIONS]",
            "",
            "Networks that grow, prune and freeze themselves while they learn, and an odour-plume world.",
            "",
            *lines,
            "",
            "gpf COMMAND --help lists the options of a command.",
        ]
    )
