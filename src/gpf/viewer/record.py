"""A page as one self-contained HTML file: scripts, style and data inside, and nothing else is ever loaded."""

import base64
import gzip
import html
import json
import re
from hashlib import sha256
from pathlib import Path
from typing import Any

from gpf.runs.folder import replace_text

STATIC = Path(__file__).parent / "static"
LIMIT = 2_000_000
"""Size of a file, bytes, at most: it can be sent by mail, and opens at once."""
_IMPORT = re.compile(r'^import\s+(?:\*\s+as\s+(\w+)|(\{[^}]*\}))\s+from\s+"\./(\w+)\.js";$', re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:async )?function|const|class) (\w+)", re.MULTILINE)


def write_page(path: Path, start: str, answers: dict[str, Any]) -> int:
    """Write a recording; returns its size, bytes.

    Args:
        path: The HTML file; one that exists is replaced.
        start: Which view is shown, as the hash of an address, such as `#/fly`.
        answers: What a server would answer, by path.
    """
    text = page(start, answers)
    size = len(text.encode())
    if size > LIMIT:
        raise ValueError(
            f"{path} would have {size / 1e6:.1f} MB, more than {LIMIT / 1e6:g} MB; record something shorter"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_text(path, text)
    return size


def page(start: str, answers: dict[str, Any]) -> str:
    """A recording as HTML."""
    data = json.dumps({"start": start, "answers": answers}, separators=(",", ":")).encode()
    packed = base64.b64encode(gzip.compress(data, 9, mtime=0)).decode()
    style, script = (STATIC / "style.css").read_text(), bundle("main")
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )
    icon = base64.b64encode((STATIC / "favicon.svg").read_bytes()).decode()
    shell = (STATIC / "index.html").read_text()
    head = (
        f'<meta http-equiv="Content-Security-Policy" content="{html.escape(policy)}">\n'
        f'<link rel="icon" href="data:image/svg+xml;base64,{icon}">\n<style>{style}</style>\n'
    )
    body = f'<script type="application/json" id="data">{packed}</script>\n<script type="module">{script}</script>\n'
    kept = [line for line in shell.splitlines(keepends=True) if "/static/" not in line]  # links to the server's files
    return "".join(kept).replace("</head>", head + "</head>").replace("</body>", body + "</body>")


def bundle(entry: str) -> str:
    """A module and all that it imports as one script. Each module becomes a function that returns its exports."""
    sources: dict[str, str] = {}
    _collect(entry, sources)
    return "\n".join(sources.values())


def _collect(name: str, sources: dict[str, str]) -> None:
    """Add a module after those that it imports."""
    text = (STATIC / f"{name}.js").read_text()
    for match in _IMPORT.finditer(text):
        if match[3] not in sources:
            _collect(match[3], sources)
    exported = ", ".join(match[2] for match in _EXPORT.finditer(text))
    text = _IMPORT.sub(lambda match: f"const {match[1] or match[2]} = module_{match[3]};", text)
    text = _EXPORT.sub(r"\1 \2", text)
    sources[name] = f"const module_{name} = (() => {{\n{text}\nreturn {{ {exported} }};\n}})();"


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(sha256(text.encode()).digest()).decode()
