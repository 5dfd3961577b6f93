"""Make the notebooks of examples/ from the scripts of the same names.

    python benchmarks/notebooks.py

A script becomes a notebook if it is written in cells: `# %%` begins code, `# %% [markdown]` begins text.
"""

import argparse
import re
from pathlib import Path
from typing import Any

import nbformat
from documents import ROOT

EXAMPLES = ROOT / "examples"
CELL = re.compile(r"^# %%( \[markdown\])?\n", re.MULTILINE)


def scripts() -> list[Path]:
    """Examples that are written in cells."""
    return [path for path in sorted(EXAMPLES.glob("*.py")) if CELL.match(path.read_text())]


def notebook(script: str) -> Any:
    """The notebook of a script, without outputs."""
    _, *parts = CELL.split(script)
    cells = []
    for number, (kind, source) in enumerate(zip(parts[::2], parts[1::2], strict=True)):
        if kind:
            text = re.sub(r"^# ?", "", source.strip(), flags=re.MULTILINE)
            cell = nbformat.v4.new_markdown_cell(text)
        else:
            cell = nbformat.v4.new_code_cell(source.strip())
        cell["id"] = f"cell-{number}"
        cells.append(cell)
    about = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return nbformat.v4.new_notebook(cells=cells, metadata=about)


def main() -> None:
    """Write all notebooks."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    for path in scripts():
        nbformat.write(notebook(path.read_text()), path.with_suffix(".ipynb"))
        print(path.with_suffix(".ipynb").relative_to(ROOT))


if __name__ == "__main__":
    main()
