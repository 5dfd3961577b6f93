"""The commands. Each is a dataclass of its options, in a module that is imported on demand."""

import errno
import os
import platform
import sys
from collections.abc import Sequence
from typing import Any

from gpf.cli.threads import use_one_thread

COMMANDS: dict[str, tuple[str, str]] = {
    "train": ("gpf.cli.train:train", "train a navigator, or a network on another task"),
    "list": ("gpf.cli.runs:List", "list runs: task, seed, steps, score, finished or not"),
    "evaluate": ("gpf.cli.evaluate:Evaluate", "measure how well policies find the source"),
    "tune": ("gpf.cli.tune:Tune", "tune a hand-written policy for a world"),
    "compare": ("gpf.cli.compare:Compare", "compare agents, or the variants of a task, over many seeds"),
    "suite": ("gpf.cli.suite:Suite", "compare all agents in all worlds of the suite, and add agents to it"),
    "sweep": ("gpf.cli.compare:Sweep", "search for good settings of a task"),
    "reproduce": ("gpf.cli.compare:Reproduce", "repeat the paper's experiment, and judge its claims"),
    "continual": ("gpf.cli.compare:Continual", "compare methods in worlds that change without notice"),
    "pays": ("gpf.cli.compare:Pays", "show where growing, pruning and freezing pay, against fixed networks"),
    "ablate": ("gpf.cli.compare:Ablate", "train without groups of memory features, to see what each is worth"),
    "page": ("gpf.cli.compare:Page", "write result pages again, from their numbers"),
    "report": ("gpf.cli.runs:Report", "write a run's report, one HTML file"),
    "view": ("gpf.cli.view:View", "show runs, plumes and navigators on a local web page"),
    "spectra": ("gpf.cli.runs:Spectra", "show what events did to the spectra of a run's network"),
    "sample": ("gpf.cli.runs:Sample", "let a language model continue a text"),
    "world": ("gpf.cli.world:world", "collect sequences of tokens, evaluate world models, plan and dream in them"),
    "plume": ("gpf.cli.plume:Plume", "measure how realistic a scenario's plume is"),
    "export": ("gpf.cli.export:Export", "export a navigator for a robot, as ONNX, C99 or a table"),
    "scenario": ("gpf.cli.evaluate:ShowScenario", "print a scenario as JSON"),
    "compile": ("gpf.cli.evaluate:Compile", "compile everything now; later commands then start at once"),
    "completion": ("gpf.cli.completion:Completion", "print a completion script for bash, zsh or fish"),
}
"""By name: where a command is, and what it does."""


def main() -> None:
    """Run the command that the arguments name; a user's mistake ends in one line and exit code 2."""
    try:
        use_one_thread()
        run(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of our output has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (ValueError, RuntimeError, ArithmeticError, OSError, MemoryError) as error:
        print(_line(error), file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt as interruption:
        print(f"gpf: interrupted{f'; {interruption}' if str(interruption) else ''}", file=sys.stderr)
        sys.exit(130)


def _line(error: BaseException) -> str:
    """An error as one line."""
    from gpf.cli.options import UsageError

    said = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EPERM, errno.EROFS) and error.filename:
        said = (
            f"no permission for {error.filename!r} ({error.strerror}); choose another folder, or change its permissions"
        )
    return said if isinstance(error, UsageError) else f"gpf: {said}"


def run(arguments: Sequence[str]) -> None:
    """Run the command that the first of some arguments names."""
    first = arguments[0] if arguments else "--help"
    if first in ("-h", "--help"):
        print(usage())
        return
    if first == "--version":
        from gpf.runs.folder import versions

        (name, version), *others = {**versions(), "Python": platform.python_version()}.items()
        print(f"{name} {version} ({', '.join(f'{one} {other}' for one, other in others)})")
        return
    from gpf.settings import choose

    name, rest = choose("command", first, COMMANDS), arguments[1:]
    if name == "train":
        from gpf.cli.names import check_training

        check_training(rest)
    from gpf.runs.executors import find

    command: Any = find(COMMANDS[name][0])
    if isinstance(command, type):
        parse(command, rest, f"gpf {name}")()
    else:
        command(rest)


def parse(command: Any, arguments: Sequence[str], name: str) -> Any:
    """A command with the options that were given; a mistake is one sentence that begins with the command."""
    from gpf.cli import names, options

    has_learner = any(option.name == "--learner" for option in options.options_of(command))
    return options.parse(command, arguments, name, names.owners if has_learner else lambda flag: "")


def usage() -> str:
    """The text of `gpf --help`."""
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
            "gpf COMMAND --help lists the options of a command; gpf --version prints the version.",
        ]
    )
