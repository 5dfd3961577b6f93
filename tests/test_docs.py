"""What the documents say can be run, runs."""

import ast
import inspect
import json
import pkgutil
import re
import shlex
import shutil
from pathlib import Path

import pytest
import yaml

from gpf.cli import COMMANDS, options, run
from gpf.plume import recordings
from gpf.plume.regimes import Stream
from gpf.studies.sweep import read_search
from gpf.tasks import REGISTRY

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
OURS = [path for path in DOCUMENTS if path.parent.name != "results"]
"""Pages of results say what was typed when they were made."""
EXAMPLES = [
    pytest.param(block, id=f"{path.name}-{number}")
    for path in DOCUMENTS
    if path.name != "tutorial.md"  # its blocks need each other; tests/test_tutorial.py runs them in order
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL))
]


def test_examples_in_docstrings_run():
    import doctest
    import importlib

    import gpf.network

    attempted = 0
    for module in pkgutil.walk_packages(gpf.network.__path__, "gpf.network."):
        result = doctest.testmod(importlib.import_module(module.name))
        assert result.failed == 0, module.name
        attempted += result.attempted
    assert attempted > 5


@pytest.mark.parametrize("code", EXAMPLES)
def test_examples_run(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "example", "exec"), {"__name__": "example"})


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)#]+)\)", path.read_text()):
        if "://" not in target:
            assert (path.parent / target).exists(), target


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_measured_table_has_been_written(path):
    text = path.read_text()
    assert text.count("<!-- ") % 2 == 0  # every marker has its end
    for name, body in re.findall(r"<!-- ([\w ]+) -->\n(.*?)<!-- end \1 -->", text, re.DOTALL):
        assert body.strip(), name


def test_commands_of_the_readme_exist():
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"make ([a-z-]+)", (ROOT / "README.md").read_text()):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.name)
def test_commands_exist(path):
    """What is typed: `gpf COMMAND` in code, and `gpf train TASK`."""
    code = re.findall(r"`([^`]+)`|^    (.*)$", path.read_text(), re.MULTILINE)
    for line in (one or other for one, other in code):
        for command in re.findall(r"(?:^|[;(] ?)gpf ([a-z]+)", line):
            assert command in COMMANDS, line
        for task in re.findall(r"(?:^|[;(] ?)gpf (?:train|compare) ([a-z][\w-]*)(?![\w./:])", line):
            assert task in REGISTRY or task == "sine", line  # the task that the documents add


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.name)
def test_files_that_are_named_exist(path):
    for name in re.findall(r"(?:benchmarks|examples|tests)/[\w/]+\.py", path.read_text()):
        assert (ROOT / name).exists(), name


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.name)
def test_modules_that_are_named_exist(path):
    for name in re.findall(r"`(gpf(?:\.\w+)+)", path.read_text()):
        pkgutil.resolve_name(name)


class Parsed(Exception):  # noqa: N818 - nothing is wrong
    """A command line was understood; what follows would take long."""


def typed(text):
    """The arguments of the commands in indented lines and in blocks of a shell."""
    shell = "".join(re.findall(r"```bash\n(.*?)```", text, re.DOTALL))
    for line in [*re.findall(r"^    (gpf .*)$", text, re.MULTILINE), *re.findall(r"^gpf .*$", shell, re.MULTILINE)]:
        for command in re.sub(r"\s+#.*| > .*", "", line).split(";"):
            yield shlex.split(command)[1:]


@pytest.mark.parametrize("path", OURS, ids=lambda path: "-".join(path.relative_to(ROOT).with_suffix("").parts))
def test_commands_are_understood_with_their_options(path, tmp_path, monkeypatch, plume_run):
    """Most take minutes: the tutorial's are run, of the others the command line is read."""

    def parse(*arguments, real=options.parse):
        raise Parsed(real(*arguments))

    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(options, "parse", parse)
    monkeypatch.setitem(REGISTRY, "sine", REGISTRY["regression"])  # the task that the documents add
    shutil.copytree(plume_run, tmp_path / "runs/plume-1")
    (tmp_path / "my_module.py").write_text("from gpf.tasks.drifting import REGRESSION as TASK")
    for world in ("mine", "windy", "hard", "detector", "corridor"):
        (tmp_path / f"{world}.json").write_text('{"preset": "reference"}')
    for arguments in typed(path.read_text()):
        with pytest.raises((Parsed, SystemExit)) as ended:
            run(arguments)
        assert ended.type is Parsed or not ended.value.code, arguments


def blocks(language):
    """Code blocks of a language: their document, and their text."""
    for path in DOCUMENTS:
        for code in re.findall(rf"```{language}\n(.*?)```", path.read_text(), re.DOTALL):
            yield path.name, code


def test_every_block_is_of_a_kind_that_is_run_or_read():
    languages = {
        language for path in DOCUMENTS for language in re.findall(r"^```(\S+)$", path.read_text(), re.MULTILINE)
    }
    assert languages == {
        "python",  # run here, or by tests/test_tutorial.py
        "bash",  # only in the tutorial: tests/test_tutorial.py
        "c",  # compiled and run by tests/edge/test_document.py
        "json", "toml", "py",  # read below
        "mermaid",  # made from the sources: tests/test_architecture.py
    }  # fmt: skip
    assert {name for name, _ in blocks("bash")} == {"tutorial.md"}
    assert {name for name, _ in blocks("c")} == {"edge.md"}


def test_blocks_that_cannot_be_run_here_are_these():
    found = sorted((name, code.split("(")[0].split("\n")[0]) for name, code in blocks("py"))
    assert found == [
        ("attach.md", '--8<-- "examples/huggingface_trainer.py"'),  # run by tests/test_examples.py
        ("attach.md", '--8<-- "examples/lightning_callback.py"'),
        ("attach.md", '--8<-- "examples/sb3_growing_policy.py"'),
        ("frameworks.md", "from torchrl.envs import GymEnv, RewardSum, SerialEnv, TransformedEnv"),  # is not installed
        ("plume.md", "import dataclasses"),  # files of others, see below
        ("plume.md", "load_recording"),
    ]


def test_recordings_of_others_are_loaded_with_arguments_that_exist():
    calls = [
        node
        for name, code in blocks("py")
        if name == "plume.md"
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "load_recording"
    ]
    assert len(calls) == 5
    for call in calls:
        given = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
        inspect.signature(recordings.load_recording).bind(*map(ast.literal_eval, call.args), **given)


def test_the_example_of_a_stream_can_be_read(tmp_path):
    ((_, example),) = blocks("json")
    (tmp_path / "mine.json").write_text(example)
    stream = Stream.of(tmp_path / "mine.json")
    assert [visit.regime for visit in stream.visits] == [visit["regime"] for visit in json.loads(example)["visits"]]


def test_the_example_of_a_search_can_be_read(tmp_path):
    ((_, example),) = blocks("toml")
    (tmp_path / "search.toml").write_text(example)
    search = read_search(tmp_path / "search.toml")
    assert {"learning_rate", "rules.grow_patience", "width"} == set(search.ranges())


def test_the_navigation_has_every_page():
    def pages(entry):
        if isinstance(entry, str):
            yield entry
        for one in entry.values() if isinstance(entry, dict) else entry if isinstance(entry, list) else ():
            yield from pages(one)

    nav = list(pages(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]))
    found = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    assert set(nav) == found, "put new pages into nav of mkdocs.yml"
    assert len(nav) == len(set(nav))
