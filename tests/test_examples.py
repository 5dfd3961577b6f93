"""Every example runs, and says what its docstring promises; notebooks are made from scripts."""

import ast
import re
import runpy
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))
import notebooks  # noqa: E402 - it lies in benchmarks/, which is no package

SAYS = {
    "attach_mlp": r"validation loss 0\.\d+.*\n.*loaded with \d layers",
    "cleanrl_ppo": r"32 new episodes: success \d+\.\d%, at random \d+\.\d%",
    "export_c": r"the same action in (\d+) of \1 steps",
    "fly_navigator": r"episodes ended at the source\nsuccess \d+\.\d% \[.*\], SPL 0\.\d+\nnavigator\.gif",
    "growing_transformer": r"grown layer 2, layer 3 .*\n2 to 4 blocks: validation loss .*\n4 to 4 blocks",
    "huggingface_trainer": r"grown layer 1(.|\n)*loss on new sequences: ",
    "lightning_callback": r"grown layer 1(.|\n)*loss on new data: ",
    "own_agent": r"reference, zigzag: success (.|\n)*turbulent, cast-and-surge: success ",
    "own_world": r"zoo:turbulent: success .*\nhall\.json, hall\.gif",
    "permuted_digits": r"one network: accuracy (.|\n)*starts version 1(.|\n)*recalled: accuracy",
    "prune_and_compact": r"removed layer(.|\n)*trained: accuracy .*\ncompacted: accuracy ",
    "sb3_growing_policy": r"grown layer 1(.|\n)*mean return: ",
}
"""By example, a pattern of what it prints."""
FILES = {"own_world": {"hall.json", "hall.gif"}, "fly_navigator": {"navigator.gif"}, "export_c": {"export-c"}}


def test_every_example_is_listed():
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} == set(SAYS)


@pytest.mark.parametrize("name", SAYS)
def test_it_runs_and_says_how_it_went(name, tmp_path, monkeypatch, capsys, one_torch_thread):
    path = ROOT / "examples" / f"{name}.py"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(path), "--quick"])
    runpy.run_path(str(path), run_name="__main__")
    said = capsys.readouterr().out
    assert re.search(SAYS[name], said), said
    assert {file.name for file in tmp_path.iterdir()} == FILES.get(name, set())


@pytest.mark.parametrize("name", SAYS)
def test_it_begins_with_what_it_shows_and_how_it_is_run(name):
    text = (ROOT / "examples" / f"{name}.py").read_text()
    begin = ast.get_docstring(ast.parse(text)) or text.partition("# %%\n")[0]
    assert f"python examples/{name}.py" in begin
    assert "--quick" in begin
    imported = {node.module.split(".")[0] for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)}
    outside = imported & {"sklearn", "transformers", "lightning", "stable_baselines3"}
    assert bool(outside) == ("Needs: " in begin)


def test_at_least_two_examples_are_notebooks():
    made = {path.stem for path in notebooks.scripts()}
    assert len(made) >= 2
    assert {path.stem for path in (ROOT / "examples").glob("*.ipynb")} == made


@pytest.mark.parametrize("path", notebooks.scripts(), ids=lambda path: path.stem)
def test_a_notebook_is_its_script(path):
    found = nbformat.read(path.with_suffix(".ipynb"), as_version=4)
    nbformat.validate(found)
    assert found == notebooks.notebook(path.read_text()), "write it again with: python benchmarks/notebooks.py"
    code = "\n".join(cell.source for cell in found.cells if cell.cell_type == "code")
    assert ast.dump(ast.parse(code)) == ast.dump(ast.parse(path.read_text()))
