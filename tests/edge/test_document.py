"""The C programs of docs/edge.md compile without a warning, and run."""

import re
import subprocess
from pathlib import Path

from edge_networks import make_exported
from learning_networks import learning_in

from gpf.edge import learning
from gpf.edge.builds import FLAGS
from gpf.edge.c import SOURCE, write_c
from gpf.edge.learning import write_learner

DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "edge.md"


ACTIONS = ("forward", "left 15", "right 15", "around", "cast left", "cast right")


def said_by(folder, source, header):
    """What the document's program that includes a header prints."""
    programs = re.findall(r"```c\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    (program,) = [program for program in programs if f'#include "{header}"' in program]
    (folder / "robot.c").write_text(program)
    robot = folder / "robot"
    subprocess.run(["gcc", *FLAGS, folder / "robot.c", folder / source, "-o", robot, "-lm"], check=True)
    return subprocess.run([robot], check=True, capture_output=True, text=True).stdout


def test_the_program_of_the_document_names_an_action(tmp_path, flights):
    policy, _ = make_exported("memory", 2, "dense")
    write_c(tmp_path, policy, flights["memory"])
    assert said_by(tmp_path, SOURCE, "gpf_policy.h").strip() in ACTIONS


def test_the_program_that_learns_saves_and_restores_its_network(tmp_path):
    write_learner(tmp_path, learning_in("memory"))
    said = said_by(tmp_path, learning.SOURCE, "gpf_learner.h").splitlines()
    assert said[0] == "first flight"
    assert said[-1] == "restored from slot 1, with 2 hidden layers"
