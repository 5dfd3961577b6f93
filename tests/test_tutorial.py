"""The tutorial can be typed as it is written; here in this process, with a short training."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))
import tutorial  # noqa: E402 - it lies in benchmarks/, which is no package

TYPED = tutorial.blocks(tutorial.PAGE.read_text())
SHORT = {
    "train": ("--steps", "8192", "--lanes", "16", "--evaluate", "20", "--no-report"),
    "evaluate": ("--episodes", "10"),
    "export": ("--episodes", "1"),
}
"""What is added to commands, to be done within seconds; the last value of an option counts."""


def test_it_is_typed_in_order(gpf, tmp_path, few_episodes, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = []
    for _, language, code in TYPED:
        if language == "python":
            exec(compile(code, "tutorial", "exec"), {"__name__": "tutorial"})
            continue
        for line in code.splitlines():
            program, *arguments = shlex.split(line)
            if program == "gpf" and arguments[0] != "compile":
                gpf(*arguments, *SHORT.get(arguments[0], ()))
                done.append(arguments[0])
    assert {"train", "evaluate", "list", "export"} <= set(done)
    assert {"surge.gif", "runs"} <= {path.name for path in tmp_path.iterdir()}


def test_it_installs_the_pinned_torch_first():
    install = next(code for heading, _, code in TYPED if heading == "Install")
    commands = re.findall(r"^pip install (.*)$", install, re.MULTILINE)
    pinned = re.search(r"^torch==\S+$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)[0]
    assert commands == [f"{pinned} --index-url https://download.pytorch.org/whl/cpu", "gpf-networks"]


def test_the_script_keeps_order_and_sections():
    typed = tutorial.blocks(
        "# T\n## A\n```bash\necho one\n```\ntext\n```python\nprint('two')\n```\n## B\n```bash\nfalse\n```\n"
    )
    assert [(heading, language) for heading, language, _ in typed] == [("A", "bash"), ("A", "python"), ("B", "bash")]
    text = tutorial.script(typed).replace("python -", f"{shlex.quote(sys.executable)} -")
    done = subprocess.run(["bash", "-c", text], capture_output=True, text=True)
    assert done.stdout.splitlines() == ["-- section A", "one", "two", "-- section B"]
    assert done.returncode == 1


@pytest.mark.parametrize("command", [code for _, language, code in TYPED if language == "bash"])
def test_no_command_needs_anything_but_gpf_and_python(command):
    assert {line.split()[0] for line in command.splitlines()} <= {"python3", ".", "pip", "gpf"}
