"""How much of the public interface has types that every type checker sees alike.

    python benchmarks/type_completeness.py [--least 98] [--show 20]

Runs pyright's `--verifytypes` on this checkout's package, with the packages of the running interpreter. Prints the
score in percent, and the first symbols whose types are missing or left to inference: those with a cause of their own
before those that only mention them. Fails below the least score.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).resolve().parent.parent / "src"
CONSEQUENCES = ("partially unknown", "Type of base class")
"""What pyright says of a symbol that only mentions another one that is incomplete."""


def main() -> None:
    """Measure, print, and fail if it is too little."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--least", type=float, default=98.0, metavar="PERCENT", help="lowest accepted score (98)")
    parser.add_argument("--show", type=int, default=20, metavar="N", help="incomplete symbols to print (20)")
    arguments = parser.parse_args()
    report = measure()
    score = 100.0 * report["completenessScore"]
    symbols = incomplete(report["symbols"])
    print(f"type completeness {score:.1f} %, {len(symbols)} symbols incomplete")
    for line in symbols[: arguments.show]:
        print(f"  {line}")
    if score < arguments.least:
        sys.exit(f"type completeness must be at least {arguments.least:g} %, got {score:.1f} %")


def measure() -> dict[str, Any]:
    """Pyright's report on the package of this checkout."""
    # With --verifytypes pyright ignores --pythonpath: it asks the first Python on PATH where packages are.
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        "PYTHONPATH": str(SOURCE),
    }
    command = [sys.executable, "-m", "pyright", "--verifytypes", "gpf", "--ignoreexternal", "--outputjson"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    try:
        report: dict[str, Any] = json.loads(done.stdout)["typeCompleteness"]
    except (ValueError, KeyError):
        sys.exit(f"pyright gave no report:\n{done.stdout}{done.stderr}")
    if (measured := report["packageRootDirectory"]) != str(SOURCE / "gpf"):
        sys.exit(f"pyright must measure {SOURCE / 'gpf'}, got {measured or 'no package'}")
    return report


def incomplete(symbols: list[dict[str, Any]]) -> list[str]:
    """The public symbols whose types are incomplete and why, those with a cause of their own first."""
    lines: list[tuple[bool, str]] = []
    for symbol in symbols:
        if not symbol["isExported"] or (symbol["isTypeKnown"] and not symbol["isTypeAmbiguous"]):
            continue
        reasons = [" ".join(one["message"].split()) for one in symbol["diagnostics"]]
        own = [one for one in reasons if not any(words in one for words in CONSEQUENCES)]
        lines.append((not own, ": ".join([symbol["name"], *(own or reasons)[:1]])))
    return [line for _, line in sorted(lines, key=lambda one: one[0])]


if __name__ == "__main__":
    main()
