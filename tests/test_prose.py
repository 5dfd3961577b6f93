"""The counter of archaic words finds them, and their number does not rise."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))
import prose  # noqa: E402 - it lies in benchmarks/, which is no package

FOUND = {
    "What does not soon do again what it did learns another world.": {"sentence that starts with What"},
    "Whoever lags is told of it.": {"archaic word", "told, told of"},
    "The run goes on, so that nothing is lost.": {"go on, for continue or resume", "so that, for so"},
    "It is left as it is.": {"as it is, as it was"},
    "A run can be resumed bit for bit.": set(),
    "What is a lane?": set(),
    "The option `--beside` names a file.": set(),
}


@pytest.mark.parametrize("sentence", FOUND)
def test_stilted_sentences_are_found_and_plain_ones_are_not(sentence):
    assert {name for name, _ in prose.matches(sentence)} == FOUND[sentence]


def test_code_is_not_prose():
    text = "# Title\n\nA sentence.\n\n```python\nanew = 1\n```\n\n    lest we forget\n\n| a | beside |\n"
    assert [one.words for one in prose.markdown("x.md", text)] == ["# Title", "A sentence.", "| a | beside |"]


def test_docstrings_comments_and_texts_are_prose_and_names_are_not():
    source = '"""A module."""\n\n# a comment\nanew = "three words here", "beside"\n'
    assert {one.words for one in prose.python("x.py", source)} == {"A module.", "a comment", "three words here"}


def test_the_project_has_few_of_them():
    counts = prose.count(list(prose.texts()))
    found, words = (sum(column) for column in zip(*counts.values(), strict=True))
    assert 1000 * found / words < 1.5, "list them with: python benchmarks/prose.py --list PATH"
    assert counts["README.md"][0] == 0
