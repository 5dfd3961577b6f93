"""The C program of docs/edge.md compiles without a warning, and runs."""

import re
import subprocess
from pathlib import Path

from edge_networks import make_exported

from gpf.edge.builds import FLAGS
from gpf.edge.c import SOURCE, write_c

DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "edge.md"


def test_the_program_of_the_document_names_an_action(tmp_path, flights):
    policy, _ = make_exported("memory", 2, "dense")
    write_c(tmp_path, policy, flights["memory"])
    (program,) = re.findall(r"```c\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    (tmp_path / "robot.c").write_text(program)
    robot = tmp_path / "robot"
    subprocess.run(["gcc", *FLAGS, tmp_path / "robot.c", tmp_path / SOURCE, "-o", robot, "-lm"], check=True)
    said = subprocess.run([robot], check=True, capture_output=True, text=True).stdout
    assert said.strip() in ("forward", "left 15", "right 15", "around", "cast left", "cast right")
