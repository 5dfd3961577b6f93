"""Put what a command printed into a document, between the markers that name it."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def insert(document: str, name: str, text: str) -> None:
    """Replace what stands between `<!-- name -->` and `<!-- end name -->` in a document of the project."""
    path = ROOT / document
    markers = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end {name} -->)", re.DOTALL)
    old = path.read_text()
    if not markers.search(old):
        raise ValueError(f"{document}: no markers for {name!r}")
    path.write_text(markers.sub(lambda found: f"{found[1]}{text.rstrip()}\n{found[2]}", old))
    print(f"written to {document}")
