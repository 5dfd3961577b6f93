"""Type docs/tutorial.md as it is written, block after block, in an empty folder, with gpf from a wheel.

    python benchmarks/tutorial.py [--wheels dist] [--own-index] [--folder FOLDER] [--write]

The tutorial makes its own environment and installs gpf-networks, which pip finds in the folder of wheels; versions of
everything else are those of constraints.txt. With --own-index, torch comes from where pip is configured to look, not
from the index that the tutorial names. The folder has a space in its name. Prints how long each section took;
`--write` puts that into the tutorial.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from documents import ROOT, insert

PAGE = ROOT / "docs" / "tutorial.md"
CLOCK = "-- section "


def blocks(text: str) -> list[tuple[str, str, str]]:
    """What is typed: of each block the heading above it, its language and the code."""
    found, heading = [], ""
    pattern = re.compile(r"^## ([^\n]+)$|^```(bash|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    for title, language, code in pattern.findall(text):
        heading = title or heading
        if language:
            found.append((heading, language, code))
    return found


def script(typed: list[tuple[str, str, str]]) -> str:
    """One shell script of all blocks, which says when a section begins."""
    lines, last = ["set -e"], ""
    for heading, language, code in typed:
        if heading != last:
            lines.append(f"echo '{CLOCK}{heading}'")
            last = heading
        lines.append(code.rstrip() if language == "bash" else f"python - <<'PYTHON'\n{code}PYTHON")
    return "\n".join([*lines, f"echo '{CLOCK}'"]) + "\n"


def type_all(folder: Path, wheels: Path, own_index: bool) -> dict[str, float]:
    """Type the tutorial in a folder; returns the seconds of each section. Fails at the first command that does."""
    page = PAGE.read_text()
    if own_index:
        page = re.sub(r" --index-url \S+", "", page)
    links = [
        os.environ.get("PIP_FIND_LINKS", ""),
        wheels.resolve().as_uri(),
    ]  # URIs, because pip splits paths at spaces
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    environment |= {
        "PIP_FIND_LINKS": " ".join(links),
        "PIP_CONSTRAINT": (ROOT / "constraints.txt").as_uri(),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_QUIET": "1",
        "PYTHONUNBUFFERED": "1",
    }
    command = ["bash", "-c", script(blocks(page))]
    seconds: dict[str, float] = {}
    section, begun = "", time.monotonic()
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(CLOCK):
                now = time.monotonic()
                if section:
                    seconds[section] = now - begun
                section, begun = line.removeprefix(CLOCK).strip(), now
            print(line, end="", flush=True)
    if process.returncode:
        sys.exit(f"the tutorial failed in section {section!r}")
    return seconds


def main() -> None:
    """Type it, and say how long it took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheels", type=Path, default=ROOT / "dist", help="folder with the wheel of gpf (dist)")
    parser.add_argument("--own-index", action="store_true", help="get torch from where pip is configured to look")
    parser.add_argument("--folder", type=Path, help="empty folder to type in (a temporary one)")
    parser.add_argument("--write", action="store_true", help="put the times into the tutorial")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary, "ten minutes")
        folder.mkdir(parents=True, exist_ok=True)
        seconds = type_all(folder.resolve(), arguments.wheels, arguments.own_index)
    rows = [f"| {section} | {taken:.0f} s |" for section, taken in {**seconds, "all": sum(seconds.values())}.items()]
    table = "\n".join(["| section | takes |", "|---|---|", *rows])
    print(table)
    if arguments.write:
        insert("docs/tutorial.md", "times", table)


if __name__ == "__main__":
    main()
