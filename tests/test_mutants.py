"""The mutation sampler of benchmarks/mutants.py, on a package made up here."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("coverage")

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"

MODULE = '''"""Numbers."""

LIMIT = 10


def clip(x: int, flag: bool = True) -> int:
    """Not above 10."""
    if x > LIMIT:
        return LIMIT
    return x


def count(items):
    total = 0
    for item in items:
        total += item
    return total
'''
TESTS = """
from made_up.numbers import clip, count


def test_clip():
    assert clip(30) == 10
    assert clip(5) == 5


def test_count():
    assert count([1, 2]) == 3
"""
KILLED = {
    "LIMIT = 10 -> LIMIT = 11",
    "total = 0 -> total = 1",
    "total += item -> pass",
    "total += item -> total -= item",
}
SURVIVE = {
    "if x > LIMIT: -> if x >= LIMIT:",  # the same, as x is then the limit
    "def clip(x: int, flag: bool = True) -> int: -> def clip(x: int, flag: bool = False) -> int:",  # never looked at
}


@pytest.fixture(scope="module")
def sites():
    spec = importlib.util.spec_from_file_location("mutation_sites", BENCHMARKS / "mutation" / "sites.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def changes(sites, source):
    """What the mutants of a source make of it, where they change a single line."""
    return {(mutant.original, mutant.mutated) for mutant in sites.mutants_of("module.py", source.encode())}


def mutated(sites, line):
    return {after for _, after in changes(sites, line)}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a < b", {"a <= b"}),
        ("a == b != c", {"a != b != c", "a == b == c"}),
        ("a is  not b", {"a is b"}),
        ("(a) not in (b)", {"(a) in (b)"}),
        ("a + b * c", {"a - b * c", "a + b / c"}),
        ("(a + b) - c", {"(a - b) - c", "(a + b) + c"}),
        ("a and b or c", {"a or b or c", "a and b and c"}),
        ("x = not (a)", {"x = (a)"}),
        ("x = 3, 0.5, None, 'text'", {"x = 4, 0.5, None, 'text'", "x = 3, 1.5, None, 'text'"}),
        ("x = True, False", {"x = False, False", "x = True, True"}),
        ("x = (a) if c else (b)", {"x = (b) if c else (a)"}),
        ("x += y", {"x -= y", "pass"}),
        ("f(x)", {"pass"}),
        ("x = np.max(a)", {"x = np.min(a)"}),
        ("x = max(a, argmin(b))", {"x = min(a, argmin(b))", "x = max(a, argmax(b))"}),
        ("x = 'ü' if a < b else c", {"x = 'ü' if a <= b else c", "x = c if a < b else 'ü'"}),  # two bytes, one letter
    ],
)  # fmt: skip
def test_every_kind_of_mutant_changes_its_own_token_only(sites, line, expected):
    assert mutated(sites, line) == expected


def test_break_and_continue_are_exchanged(sites):
    assert changes(sites, "for x in y:\n    break\nfor x in y:\n    continue\n") == {
        ("break", "continue"),
        ("continue", "break"),
    }


@pytest.mark.parametrize(
    "source",
    [
        '"""A docstring with 1 < 2."""',
        "x: Literal[3]",
        "def f(x: Literal[3] = None) -> Literal[4]: ...",
        "if TYPE_CHECKING:\n    x = 1",
        "if __name__ == '__main__':\n    x = 1",
        "class C:\n    def __str__(self): return str(1 + 2)",
        "raise ValueError(f'{n + 1} of {3}')",
        "x = f'{n + 1:>3}'",
        "@cache(maxsize=3)\ndef f(): ...",
        "__version__ = 3",
        "print(1 + 2)",
        "x = 1  # pragma: no cover",
        "x = 'a' + b",
    ],
)
def test_text_types_and_messages_are_not_mutated(sites, source):
    assert changes(sites, source) == set()


def test_a_mutant_knows_its_function_and_whether_numba_compiles_it(sites):
    source = "class C:\n    limit = 1\n    @njit(error_model='numpy')\n    def f(x):\n        return x + y\n"
    outside, inside = sites.mutants_of("module.py", source.encode())
    assert (outside.function, outside.in_function, outside.kernel) == ("C", False, "")
    assert (inside.function, inside.in_function, inside.kernel) == ("C.f", True, "f")


def test_the_default_of_an_argument_matters_to_those_who_run_the_body(sites):
    (default,) = sites.mutants_of("module.py", b"def f(\n    x=1,\n):\n    y = x\n    return y\n")
    assert (default.line, default.statement, default.function, default.in_function) == (2, (4, 5), "f", True)


def test_a_larger_sample_begins_with_the_smaller_one(sites, tmp_path):
    (tmp_path / "module.py").write_text("x = [" + ", ".join(map(str, range(50))) + "]\n")
    mutants = sites.mutants_of("module.py", (tmp_path / "module.py").read_bytes())
    small, large, other = (sites.draw(tmp_path, mutants, *which) for which in ((5, 1), (20, 1), (5, 2)))
    assert len({mutant.id for mutant in large}) == 20
    assert small == large[:5]
    assert small != other


@pytest.fixture(scope="module")
def made_up(tmp_path_factory):
    """A checkout whose tests kill some mutants, and what the sampler printed about it."""
    root = tmp_path_factory.mktemp("checkout")
    for path, text in {
        "src/made_up/__init__.py": "",
        "src/made_up/numbers.py": MODULE,
        "src/made_up/figures.py": "WIDTH = 3\n",
        "tests/test_numbers.py": TESTS,
        "tests/test_broken.py": "def test_fails_without_mutants():\n    assert False\n",
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    before = tree(root)
    return root, before, sample(root)


def sample(root):
    command = [sys.executable, BENCHMARKS / "mutants.py", "--root", root, "--jobs", "1"]
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # each run of pytest starts sooner
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def tree(root):
    return {path.relative_to(root): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_mutants_that_tests_notice_are_killed_and_the_others_listed(made_up):
    root, _, printed = made_up
    results = [json.loads(line) for line in (root / "runs/mutants/results.jsonl").read_text().splitlines()]
    outcomes = {f"{one['original']} -> {one['mutated']}": one["outcome"] for one in results}
    assert outcomes == dict.fromkeys(KILLED, "killed") | dict.fromkeys(SURVIVE, "survived")
    assert "killed 4 of 6, 0 equivalent" in printed
    assert "src/made_up/figures.py" in printed  # excluded, and said so
    assert "tests/test_broken.py::test_fails_without_mutants" in printed  # not used, and said so
    survivors = (root / "runs/mutants/survivors.txt").read_text()
    assert "src/made_up/numbers.py:8: if x > LIMIT: -> if x >= LIMIT:" in survivors
    assert survivors in printed


def test_only_tests_that_run_the_line_are_run(made_up):
    root, *_ = made_up
    for line in (root / "runs/mutants/results.jsonl").read_text().splitlines():
        result = json.loads(line)
        if result["function"] == "count":
            assert (result["by"], result["tests"]) == ("tests/test_numbers.py::test_count", 1)


def test_the_working_tree_is_left_alone(made_up):
    root, before, _ = made_up
    assert {path: text for path, text in tree(root).items() if path.parts[0] != "runs"} == before


def test_an_interrupted_run_continues_and_equivalent_mutants_are_counted_out(made_up):
    root, *_ = made_up
    results = root / "runs/mutants/results.jsonl"
    lines = results.read_text().splitlines()
    results.write_text("\n".join(lines[:5]) + "\n" + lines[5][:20])  # killed while it wrote the last one
    (root / "benchmarks").mkdir()
    reason = "src/made_up/numbers.py | clip | if x > LIMIT: => if x >= LIMIT: | x is the limit"
    (root / "benchmarks/mutants.equivalent.txt").write_text(f"# judged equivalent\n{reason}\n")
    printed = sample(root)
    assert "5 of them were run before" in printed
    assert "baseline:" not in printed
    assert "[1/1]" in printed
    assert "killed 4 of 6, 1 equivalent" in printed
    assert "80.0%" in printed
    assert json.loads(results.read_text().splitlines()[-1])["mutant"] == json.loads(lines[5])["mutant"]
