"""`gpf completion SHELL` prints a script that completes commands, tasks, options, their values and run folders.

The script is written from the options of every command, so it knows what they know; write it again after an upgrade.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from gpf.cli.names import POLICIES, RULES, ZOO
from gpf.cli.options import Option, Positional, options_of
from gpf.plume.presets import PRESETS
from gpf.tasks.registry import REGISTRY

RUNS, FILES = "<runs>", "<files>"
"""Values that the shell looks up."""
STREAMS = ("gentle", "harsh", "returning")
PARENTS = ("train", "world")
"""Commands whose words are commands below them: only the first word can be one."""


@dataclass
class Completion:
    """Print a completion script: commands, tasks, options, policies, scenarios and run folders.

    bash: gpf completion bash > ~/.local/share/bash-completion/completions/gpf

    zsh: gpf completion zsh > ~/.gpf-completion, and in ~/.zshrc, after compinit: source ~/.gpf-completion

    fish: gpf completion fish > ~/.config/fish/completions/gpf.fish
    """

    shell: Positional[Literal["bash", "zsh", "fish"]]
    """Which shell."""

    def __call__(self) -> None:
        """Print the script."""
        pages = all_pages()
        print(fish_script(pages) if self.shell == "fish" else bash_script(pages, zsh=self.shell == "zsh"))


@dataclass
class Page:
    """The options of a command."""

    about: str
    words: list[str] = field(default_factory=list)
    """Positional values."""
    options: dict[str, list[str]] = field(default_factory=dict)
    """With the values of each; none for a flag, or where anything goes."""
    many: set[str] = field(default_factory=set)
    """Options that take any number of values."""


def all_pages() -> dict[str, Page]:
    """Of every command, by what is typed for it; `train` and `world` have commands below them."""
    from gpf.cli import COMMANDS
    from gpf.cli.train import commands_of
    from gpf.cli.world import COMMANDS as WORLD
    from gpf.runs.executors import find
    from gpf.tasks import find_task

    kinds = {name: find(where) for name, (where, _) in COMMANDS.items()}
    pages = {name: _page([kinds[name]] if isinstance(kinds[name], type) else [], COMMANDS[name][1]) for name in kinds}
    pages["train"] = _page(commands_of(find_task("plume")), pages["train"].about)
    pages |= {f"train {task}": _page(commands_of(find_task(task)), f"train on the task {task}") for task in REGISTRY}
    pages |= {f"world {name}": _page([kind], (kind.__doc__ or "").split("\n")[0]) for name, kind in WORLD.items()}
    compared = [task for task in REGISTRY if find_task(task).variants]
    below = {
        "train": list(REGISTRY), "compare": [*compared, FILES], "world": list(WORLD), "scenario": [*PRESETS, FILES],
        "plume": [*PRESETS, FILES], "evaluate": [*POLICIES, *ZOO, RUNS], "completion": ["bash", "zsh", "fish"],
        "sweep": [FILES], "page": [FILES],
    }  # fmt: skip
    for name in ("list", "view", "report", "spectra", "sample", "world evaluate", "world plan", "world dream"):
        below[name] = [RUNS]
    for name, words in below.items():
        pages[name].words = words
    return pages


def _page(commands: Iterable[type], about: str) -> Page:
    """The options of all variants of a command."""
    page = Page(about)
    for option in (option for command in commands for option in options_of(command) if not option.positional):
        page.options |= {flag: _values(option) for flag in (option.flags if option.default else option.flags[:1])}
        if option.is_list:
            page.many.add(option.name)
    page.options["--help"] = []
    return page


def _values(option: Option) -> list[str]:
    known = {
        "--scenario": [*PRESETS, FILES], "--scenarios": [*PRESETS, FILES], "--baselines": list(POLICIES),
        "--resume": [RUNS], "--from": [*ZOO, RUNS], "--navigator": [*ZOO, RUNS],
        "--follow": ["repeat", "cast-and-surge", RUNS],
        "--stream": [*STREAMS, FILES], "--streams": [*STREAMS, FILES],
        "--rules": list(RULES),
    }  # fmt: skip
    return known.get(option.name) or option.choices or ([FILES] if Path in option.kinds else [])


_BASH = """\
_gpf_words() {  # of COMMAND, at a place on the line
    case "$1 $2" in
{words}
    esac
}
_gpf_options() {
    case "$1" in
{options}
    esac
}
_gpf_values() {  # of COMMAND OPTION; several where it takes many
    case "$1" in
{values}
    esac
}
_gpf_many() {
    case "$1" in
{many}
    esac
    return 1
}
_gpf() {
    local IFS=$' \\t\\n' cur="${COMP_WORDS[COMP_CWORD]}" name="${COMP_WORDS[1]}" option="" some="" i start=2
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "{commands} --help --version" -- "$cur"))
        return
    fi
    if [ "$COMP_CWORD" -gt 2 ] && [ -n "$(_gpf_options "$name ${COMP_WORDS[2]}")" ]; then
        name="$name ${COMP_WORDS[2]}"
        start=3
    fi
    for ((i = start; i < COMP_CWORD; i++)); do
        case "${COMP_WORDS[i]}" in
            --*) option="${COMP_WORDS[i]}" ;;
            =) ;;  # bash splits --option=value
            *) _gpf_many "$name $option" || option="" ;;
        esac
    done
    case "$cur" in
        -*) some="$(_gpf_options "$name")" ;;
        *)
            if [ -n "$option" ]; then some="$(_gpf_values "$name $option")"; fi
            if [ -z "$some" ]; then some="$(_gpf_words "$name" "$COMP_CWORD")"; fi
            ;;
    esac
    local word all=""
    for word in $some; do
        case "$word" in
            '<runs>') all="$all"$'\\n'"$(find runs -maxdepth 4 -name config.json 2>/dev/null | sed 's:/config.json$::')"
                all="$all"$'\\n'"$(compgen -d -- "$cur")" ;;
            '<files>') all="$all"$'\\n'"$(compgen -f -- "$cur")" ;;
            *) all="$all"$'\\n'"$word" ;;
        esac
    done
    IFS=$'\\n'
    COMPREPLY=($(printf '%s\\n' "$all" | awk -v start="$cur" 'length($0) && index($0, start) == 1' | sort -u))
}
complete -o filenames -F _gpf gpf"""


def bash_script(pages: dict[str, Page], zsh: bool = False) -> str:
    """For bash; zsh runs the same functions."""
    values: dict[str, list[str]] = {}
    for name, page in pages.items():
        for option, some in page.options.items():
            if some:
                values.setdefault(" ".join(some), []).append(f'"{name} {option}"')
    cases = {
        "words": [
            f'"{name} "{2 if name in PARENTS else "*"}) echo "{" ".join(page.words)}" ;;'
            for name, page in pages.items()
            if page.words
        ],
        "options": [f'"{name}") echo "{" ".join(page.options)}" ;;' for name, page in pages.items()],
        "values": [f'{" | ".join(names)}) echo "{some}" ;;' for some, names in values.items()],
        "many": [f'"{name} {one}") return 0 ;;' for name, page in pages.items() for one in sorted(page.many)],
    }
    script = _BASH
    for name, lines in cases.items():
        script = script.replace("{" + name + "}", "\n".join(f"        {line}" for line in lines))
    script = script.replace("{commands}", " ".join(name for name in pages if " " not in name))
    return f"autoload -U +X bashcompinit && bashcompinit\n{script}" if zsh else script


def fish_script(pages: dict[str, Page]) -> str:
    """For fish."""
    lines = [
        "complete -c gpf -f",
        "function __gpf_runs",
        "    find runs -maxdepth 4 -name config.json 2>/dev/null | string replace -r '/config.json$' ''",
        "end",
        "complete -c gpf -n __fish_use_subcommand -l help",
        "complete -c gpf -n __fish_use_subcommand -l version",
    ]
    for name, page in pages.items():
        first, _, second = name.partition(" ")
        when = f"__fish_seen_subcommand_from {first}" + (
            f"; and __fish_seen_subcommand_from {second}" if second else ""
        )
        if not second:
            about = page.about.replace("'", "\\'")
            lines.append(f"complete -c gpf -n __fish_use_subcommand -a {first} -d '{about}'")
        if page.words:
            first_word = "; and test (count (commandline -opc)) -eq 2" if name in PARENTS else ""
            lines.append(f"complete -c gpf -n '{when}{first_word}'{_fish_values(page.words)}")
        for option, some in page.options.items():
            lines.append(f"complete -c gpf -n '{when}' -l {option[2:]}{f' -r{_fish_values(some)}' if some else ''}")
    return "\n".join(lines)


def _fish_values(some: Sequence[str]) -> str:
    words = " ".join("(__gpf_runs)" if word == RUNS else word for word in some if word != FILES)
    return (" -F" if FILES in some else "") + (f" -a '{words}'" if words else "")
