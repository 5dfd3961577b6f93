"""Counts archaic words and stilted constructions in README, docs and the texts of src/gpf.

    python benchmarks/prose.py                        # a table by area, with the total
    python benchmarks/prose.py --list src/gpf/plume   # every match below a path, with its file and line
    python benchmarks/prose.py --samples 10 --seed 1  # ten random paragraphs; the same places after an edit

Texts are the paragraphs of Markdown files outside code blocks, and the docstrings, comments and string literals of
Python files. A string literal counts as text if it has at least three words. A match is evidence, not proof: some of
these words are right in some sentences. `tests/test_prose.py` keeps the number from rising.
"""

import argparse
import ast
import hashlib
import io
import re
import textwrap
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gpf.reports.tables import markdown_table

ROOT = Path(__file__).resolve().parents[1]
PATTERNS: dict[str, str] = {
    "archaic word": r"anew|lest|midst|amidst|whilst|upon|whoever|whence|thereof|wherein|therein|thereby|hitherto|nought"
    r"|henceforth|forthwith|albeit|amongst|learnt|shall|ought|wholly|scarcely|likewise|oneself|for ever",
    "beside, for next to or in addition to": r"beside",
    "go on, for continue or resume": r"(?:go|goes|going|gone|went) on(?! to\b)",
    "told, told of": r"told|(?:tell|tells) of",
    "hold against, held to": r"(?:hold|holds|held|holding) (?:against|to|up against|still)",
    "owed, owes, duty": r"owe|owes|owed|duty|duties",
    "of which the best": r"of which (?:the|all|only|one|none|some|each|every|half|most|no|a|an)",
    "inverted so": r"(?<=[,;.] )(?:and )?so (?:is|are|do|does|did|was|were|has|have)|not so (?:with|for)",
    "for, meaning because": r"(?<=, )for (?!which|whom|example)"
    r"(?:(?!that|which|who|where|when|if|with|of|in)\w+ ){1,4}"
    r"(?:is|are|has|have|was|were|would|may|can|cannot|do|does|did|must|will)",
    "so that, for so": r"(?<=, )so that",
    "sentence that starts with What": r"(?:(?<=^)|(?<=[.:;!] ))What\b(?![^.:]*\?)",
    "nobody, somebody": r"nobody|somebody|no one|one's own",
    "in the end, as ever": r"in the end|as ever|at all events|by and by|so to speak|as it were|in the course of",
    "what it came to": r"(?:come|comes|came) to (?:nothing|this|that|be|such|so)"
    r"|what (?:it|they|that) (?:came|comes) to",
    "made of it, makes of": r"(?:make|makes|made|making) of (?:it|them|that|this|what|its|their|one)",
    "is to be": r"(?:is|are|was|were) to be",
    "nothing but, all but": r"nothing but|all but|none but|but for",
    "of then": r"of then|of that time|of today|as of old|of late",
    "least, for minimum": r"(?:of|with|by|the) least|least of all",
    "astray, takes note": r"astray|(?:take|takes|took) (?:note|notice)|(?:bear|bears) on|(?:lie|lies) in wait",
    "where there is one": r"(?:where|if) there (?:is|are) (?:one|none|any|some)|where (?:it|they) (?:is|are) not",
    "accepted: ...": r"accepted:",
    "a further, so many": r"a further|so many|so few|so much",
    "as it is, as it was": r"as (?:it|they) (?:is|are|was|were)(?= now|[,.;:]|$)",
    "trained on three parts": r"three parts",
    "whatever, however it": r"(?:whatever|however) (?:it|they|the|that|is|a)",
    "looked at": r"looked at|looks at",
}
"""Regular expressions by what they find; each is matched between word boundaries and without regard to case."""
COMPILED = {name: re.compile(rf"(?<!\w)(?:{pattern})(?!\w)", re.I) for name, pattern in PATTERNS.items()}


@dataclass(frozen=True)
class Text:
    """A paragraph, with its place."""

    file: str
    line: int
    key: str
    """Names the place in the same way after an edit elsewhere in the file."""
    words: str

    @property
    def area(self) -> str:
        """README, a folder of docs, or a package."""
        parts = Path(self.file).parts
        if parts[0] == "src":
            return "/".join(parts[:3]) if len(parts) > 3 else "src/gpf/*.py"
        return "docs/results" if parts[:2] == ("docs", "results") else "docs" if parts[0] == "docs" else parts[0]


def texts() -> Iterator[Text]:
    """All paragraphs, in the order of their files."""
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        yield from markdown(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
    for path in sorted((ROOT / "src/gpf").rglob("*.py")):
        yield from python(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))


def markdown(file: str, source: str) -> Iterator[Text]:
    """The paragraphs of a Markdown file outside code blocks; a table row or a list item is one too."""
    lines, start, fenced, count = list[str](), 0, False, 0
    for number, line in enumerate([*source.splitlines(), ""], 1):
        fence = line.lstrip().startswith("```")
        code = fenced or fence or (line.startswith("    ") and not lines)
        ends = code or not line.strip() or re.match(r"\s*(?:[-*|#]|\d+\.) ?", line)
        if ends and lines:
            yield Text(file, start, f"{file} {count}", _joined(" ".join(lines)))
            lines, count = [], count + 1
        if fence:
            fenced = not fenced
        if not code and line.strip():
            start = start if lines else number
            lines.append(line)


def python(file: str, source: str) -> Iterator[Text]:
    """The docstrings, comments and string literals of a Python file."""
    tree = ast.parse(source)
    docstrings, inside = set[ast.AST](), set[ast.AST]()
    for name, node in _named(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            docstrings.add(node.value)
            for n, paragraph in enumerate(re.split(r"\n\s*\n", node.value.value)):
                yield Text(file, node.lineno, f"{file} {name} {n}", _joined(paragraph))
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            inside.update(child for child in ast.walk(node) if child is not node)
    count = 0
    for node in ast.walk(tree):
        if node in docstrings or node in inside:
            continue
        literal = _literal(node)
        if literal is not None and len(re.findall(r"[^\W\d_]{2,}", literal)) >= 3 and " " in literal:
            yield Text(file, node.lineno, f"{file} literal {count}", _joined(literal))  # type: ignore[attr-defined]
            count += 1
    yield from _comments(file, source)


def _named(tree: ast.AST, name: str = "") -> Iterator[tuple[str, ast.AST]]:
    for n, child in enumerate(ast.iter_child_nodes(tree)):
        yield f"{name}.{n}", child
        if isinstance(child, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            yield from _named(child, f"{name}.{child.name}")


def _literal(node: ast.AST) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    return None


def _comments(file: str, source: str) -> Iterator[Text]:
    """Comments; those of consecutive lines are one."""
    last, start, words, count = -1, 0, list[str](), 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT or re.match(r"#\s*(?:fmt|type|noqa)", token.string):
            continue
        if token.start[0] != last + 1 and words:
            yield Text(file, start, f"{file} comment {count}", _joined(" ".join(words)))
            words, count = [], count + 1
        start = start if words else token.start[0]
        words.append(token.string.lstrip("# "))
        last = token.start[0]
    if words:
        yield Text(file, start, f"{file} comment {count}", _joined(" ".join(words)))


def _joined(words: str) -> str:
    return " ".join(words.split())


def matches(words: str) -> list[tuple[str, str]]:
    """What a paragraph has of each pattern: its name and the words that match."""
    plain = re.sub(r"`[^`]*`", "`code`", words)
    return [(name, found.group()) for name, pattern in COMPILED.items() for found in pattern.finditer(plain)]


def count(all_texts: list[Text]) -> dict[str, tuple[int, int]]:
    """Matches and words of each area."""
    counts: dict[str, tuple[int, int]] = {}
    for text in all_texts:
        found, words = counts.get(text.area, (0, 0))
        counts[text.area] = found + len(matches(text.words)), words + len(text.words.split())
    return counts


def total() -> int:
    """Matches in everything."""
    return sum(found for found, _ in count(list(texts())).values())


def sample(all_texts: list[Text], number: int, seed: int) -> list[Text]:
    """Random paragraphs of at least twelve words, chosen by their places and not by their words."""
    long = [text for text in all_texts if len(text.words.split()) >= 12]
    return sorted(long, key=lambda text: hashlib.sha256(f"{seed} {text.key}".encode()).hexdigest())[:number]


def main() -> None:
    """Print the table, the matches below a path, or random paragraphs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", metavar="PATH", help="print every match below this path")
    parser.add_argument("--samples", type=int, default=0, help="print so many random paragraphs")
    parser.add_argument("--seed", type=int, default=0, help="seed of the samples")
    options = parser.parse_args()
    all_texts = list(texts())
    if options.samples:
        for text in sample(all_texts, options.samples, options.seed):
            print(f"{text.file}:{text.line}\n{textwrap.indent(textwrap.fill(text.words, 110), '    ')}\n")
        return
    if options.list:
        for text in all_texts:
            if text.file.startswith(options.list):
                for name, found in matches(text.words):
                    print(f"{text.file}:{text.line}: {found!r} ({name}): {text.words[:300]}")
        return
    counts = count(all_texts)
    counts["total"] = tuple(map(sum, zip(*counts.values(), strict=True)))  # type: ignore[assignment]
    rows = [
        [area, f"{found:,}", f"{words:,}", f"{1000 * found / max(words, 1):.1f}"]
        for area, (found, words) in counts.items()
    ]
    print(markdown_table(["area", "matches", "words", "per 1,000 words"], rows))
    kinds = Counter(name for text in all_texts for name, _ in matches(text.words))
    print("\n" + markdown_table(["construction", "matches"], [[name, f"{n:,}"] for name, n in kinds.most_common()]))


if __name__ == "__main__":
    main()
