"""A run as one self-contained HTML file: its shell, and the parts that all tasks share."""

import base64
import html
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from gpf.reports.glossary import definitions, link_terms

STYLE = """
:root { color-scheme: light; --ink: #1d2733; --soft: #5b6774; --line: #dde3e9; --accent: #2f5d8c; }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 70rem; background: #f6f8fa; color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0; overflow-wrap: anywhere; } h2 { font-size: 1.15rem; margin: 0 0 .6rem; }
p { margin: .4rem 0; } .soft { color: var(--soft); }
nav { display: flex; flex-wrap: wrap; gap: 0 1rem; margin: .8rem 0 0; }
nav a { color: var(--accent); text-decoration: none; }
section { background: #fff; border: 1px solid var(--line); border-radius: 8px; padding: 1.1rem 1.25rem;
  margin: 1rem 0; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(10.5rem, 1fr)); gap: .75rem; margin: 1rem 0; }
.card { background: #fff; border: 1px solid var(--line); border-radius: 8px; padding: .7rem .9rem; }
.card b { display: block; font-size: 1.45rem; line-height: 1.25; font-variant-numeric: tabular-nums; }
.card span { color: var(--soft); font-size: .85rem; }
.wide { overflow-x: auto; margin-bottom: 1rem; }
table { border-collapse: collapse; width: 100%; font-size: .88rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .3rem .7rem .3rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--soft); font-weight: 600; white-space: nowrap; }
tr.chosen td { font-weight: 600; }
img { display: block; width: 100%; max-width: 52rem; height: auto; margin: 0 auto; }
figure { margin: 0 0 1rem; } p.caption { color: var(--soft); font-size: .88rem; }
.row { display: grid; gap: 1rem; align-items: start;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); }
.row.small { gap: .5rem; grid-template-columns: repeat(4, 1fr); } .row.films img { max-width: 24rem; }
.conclusion { border-left: 3px solid var(--accent); padding-left: .7rem; margin-bottom: 1.4rem; }
a.term { color: inherit; text-decoration: underline dotted; text-underline-offset: .2em; }
dl { margin: 0; columns: 22rem; font-size: .88rem; } dl div { break-inside: avoid; } dt { font-weight: 600; }
dd { margin: 0 0 .5rem; color: var(--soft); }
@media (max-width: 40rem) {
  body { padding: 1rem .6rem 2rem; } section { padding: .9rem .8rem; } .row.small { grid-template-columns: 1fr 1fr; }
  .many thead { display: none; } .many tr { display: block; padding: .4rem 0; border-bottom: 1px solid var(--line); }
  .many td { display: block; position: relative; padding: .1rem 0 .1rem 9.5rem; border: 0; }
  .many td::before { content: attr(data-of); position: absolute; left: 0; color: var(--soft); font-weight: 400; }
}
details { margin: .4rem 0; } summary { cursor: pointer; }
code { font-size: .9em; background: #eef2f5; padding: .1em .3em; border-radius: 4px; overflow-wrap: anywhere; }
"""


def page(name: str, headline: str, cards: Sequence[tuple[str, str]], sections: dict[str, str], above: str = "") -> str:
    """The whole file: the name of the run, a line about it, key numbers, and sections by title."""
    sections = {title: body for title, body in sections.items() if body}
    glance = "".join(
        f'<div class="card"><b>{html.escape(value)}</b><span>{html.escape(what)}</span></div>' for value, what in cards
    )
    body = "".join(section(title, body) for title, body in sections.items())
    explained, terms = link_terms(f'<div class="cards">{glance}</div>{above}{body}')
    if terms:
        explained += section("Terms", definitions(terms))
    links = "".join(f'<a href="#{title.lower()}">{title}</a>' for title in [*sections, *(["Terms"] if terms else [])])
    title = html.escape(name)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="data:,"><style>{STYLE}</style></head><body>'
        f'<header><h1>{title}</h1><p class="soft">{html.escape(headline)}</p><nav>{links}</nav></header>'
        f"{explained}</body></html>\n"
    )


def section(title: str, body: str) -> str:
    """A part of the page, with a heading."""
    return f'<section id="{title.lower()}"><h2>{title}</h2>{body}</section>'


def event_table(events: list[dict[str, Any]], when: str) -> str:
    """Growing, pruning and freezing, each with its reason; `when` is the unit of their time."""
    if not events:
        return "<p>None: nothing grew, was pruned or froze.</p>"
    rows = [
        [f"{event[when]:,}", event["kind"], ", ".join(map(str, event.get("layers", []))) or "-", event["reason"],
         *_shapes(event)]
        for event in events
    ]  # fmt: skip
    return table([when, "event", "layers", "why", "depth", "density", "stack parameters"], rows)


def _shapes(event: dict[str, Any]) -> list[str]:
    """Depth, density and parameters around an event; of a decision about whole networks, what they are then."""
    before, after = event["before"], event.get("after")
    if after is None:
        return [f"{event['depth']}", "-", f"{event['parameters']:,}"]
    return [
        _arrow(before["depth"], after["depth"], "d"),
        _arrow(_density(before), _density(after), ".3f"),
        _arrow(before["parameters"] - before["pruned"], after["parameters"] - after["pruned"], ",d"),
    ]


def _density(shape: dict[str, Any]) -> float:
    """The share of the weights that is not pruned."""
    return 1.0 - shape["pruned"] / shape["weights"] if shape["weights"] else 1.0


def _arrow(before: float, after: float, form: str) -> str:
    old, new = format(before, form), format(after, form)
    return new if old == new else f"{old} → {new}"


def settings(config: dict[str, Any]) -> str:
    """Everything that a run was made with."""
    parts = []
    for title, key in (("Learner", "config"), ("Rules", "rules"), ("World", "world"), ("Versions", "versions")):
        values = config.get(key, {})
        rows = [[name, "-" if value is None else str(value)] for name, value in values.items()]
        parts.append(f"<details><summary>{title}</summary>{table(['setting', 'value'], rows)}</details>")
    return "".join(parts)


def figure(path: Path, caption: str) -> str:
    """A figure, in the file itself, with what it shows."""
    return f"{_caption(caption)}<figure>{_image(path, caption)}</figure>"


def figures(paths: Sequence[Path], caption: str, small: bool = False) -> str:
    """Figures that belong together, next to each other where there is room."""
    images = "".join(_image(path, caption) for path in paths)
    return f'{_caption(caption)}<figure class="row{" small" if small else ""}">{images}</figure>'


def conclusion(text: str) -> str:
    """A summary of the numbers in a highlighted sentence."""
    return f'<p class="conclusion">{html.escape(text)}</p>'


def _caption(text: str) -> str:
    return f'<p class="caption">{html.escape(text)}</p>'


def _image(path: Path, words: str) -> str:
    """A picture or an animation, in the file itself."""
    data = base64.b64encode(path.read_bytes()).decode()
    return f'<img alt="{html.escape(words)}" src="data:image/{path.suffix[1:]};base64,{data}">'


def table(header: Sequence[str], rows: Iterable[Sequence[str]], chosen: int = -1) -> str:
    """A table; the row `chosen` stands out. On a narrow screen, one of many columns becomes a list for each row."""
    names = [html.escape(name) for name in header]
    head = "".join(f"<th>{name}</th>" for name in names)
    body = "".join(
        ('<tr class="chosen">' if n == chosen else "<tr>")
        + "".join(f'<td data-of="{name}">{html.escape(cell)}</td>' for name, cell in zip(names, row, strict=True))
        + "</tr>"
        for n, row in enumerate(rows)
    )
    kind = ' class="many"' if len(names) > 3 else ""
    return f'<div class="wide"><table{kind}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
