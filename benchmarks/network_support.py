"""What gpf works with: every row of the support table in docs/network.md is a script that is run.

    python benchmarks/network_support.py [--only NAME ...] [--write]

A row is a whole training script: a model of the zoo in tests/network, or a practice in benchmarks/support. Each one has
to grow, prune and freeze, keep the outputs when it grows and the zeros where it was pruned, or be refused with an
error that says why. Lines of user code are those marked in the script. `--write` puts the tables into docs/network.md.
"""

import argparse
import inspect
import logging
import re
import sys
import time
import traceback
import warnings
from collections.abc import Callable

import torch
from documents import insert
from support import architectures, practices

from gpf.reports.tables import markdown_table


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="rows whose name contains one of these")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/network.md")
    arguments = parser.parse_args()
    if arguments.write and arguments.only:
        parser.error("--write needs all rows: leave out --only")
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    failed: list[str] = []
    models = run(architecture_row, architectures.ZOO, arguments.only, failed)
    ways = run(practice_row, {"torch's optimizers": None, **practices.PRACTICES}, arguments.only, failed)
    tables = [
        markdown_table(["model", "result", "lines", "stack", "grows", "left by `compact()`"], models),
        markdown_table(["practice", "result", "lines", "your code"], ways),
    ]
    print(*tables, sep="\n\n")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")
    if arguments.write:
        insert("docs/network.md", "architectures", tables[0])
        insert("docs/network.md", "practices", tables[1])


def run(
    row: Callable[[str], tuple[str, ...]], names: object, only: list[str] | None, failed: list[str]
) -> list[tuple[str, ...]]:
    """All rows by the given names; those that fail are printed and added to the list."""
    rows = []
    for name in names:  # type: ignore[attr-defined]
        if only and not any(part.lower() in name.lower() for part in only):
            continue
        start = time.monotonic()
        try:
            rows.append(row(name))
        except Exception:
            traceback.print_exc()
            failed.append(name)
        print(
            f"{name}: {rows[-1][1] if name not in failed else 'FAILED'}, {time.monotonic() - start:.1f} s", flush=True
        )
    return rows


def architecture_row(name: str) -> tuple[str, ...]:
    """One model of the zoo."""
    stack, grows, left = architectures.run(name)
    return name, "works", str(len(marked(architectures.script))), f"`{stack}`", grows, left


def practice_row(name: str) -> tuple[str, ...]:
    """One practice, or all of torch's optimizers."""
    torch.manual_seed(0)
    if name == "torch's optimizers":
        for script in practices.OPTIMIZERS.values():
            practices.check(script())
        result, code = "works: " + ", ".join(practices.OPTIMIZERS), marked(practices.optimizer_script)
    else:
        script = practices.PRACTICES[name]
        outcome = script()
        code = marked(script) or marked(getattr(practices, f"_{script.__name__}"))
        if isinstance(outcome, Exception):
            result = f"refused: {outcome}"
            return name, result, "", ""
        if outcome is not None:  # other processes check theirs
            practices.check(outcome)
        result = "works"
    return name, result, str(len(code)), "<br>".join(f"`{line}`" for line in code)


def marked(script: Callable[..., object]) -> list[str]:
    """The statements of a script that end with the mark `# gpf`, each on one line."""
    statements, open_lines = [], ""
    for line in inspect.getsource(script).splitlines():
        if line.rstrip().endswith("(") and "gpf." in line:
            open_lines = line.strip()
        elif open_lines:
            open_lines += " " + line.strip()
            if line.rstrip().endswith("# gpf"):
                statements.append(open_lines)
                open_lines = ""
        elif line.rstrip().endswith("# gpf"):
            statements.append(line.strip())
    return [re.sub(r"\s*# gpf$", "", one).replace("( ", "(").replace(" )", ")").rstrip(",") for one in statements]


if __name__ == "__main__":
    main()
