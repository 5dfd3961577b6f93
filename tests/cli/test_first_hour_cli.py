"""What somebody types in the first hour: lists, help, completion, misspelled names, several evaluations at once."""

import contextlib
import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpf.cli import COMMANDS, names
from gpf.cli.shared import check_folder, show_markdown
from gpf.plume.scenario import Scenario
from gpf.runs.folder import Run
from gpf.tasks import REGISTRY

ROOT = Path(__file__).parent.parent.parent
HEAVY = "import sys; from gpf.cli import main; sys.argv = ['gpf', *sys.argv[1:]]\ntry: main()\nfinally: print({*sys.modules} & {'torch', 'numba'} or 'light')"  # noqa: E501


def python(*arguments, cwd):
    return subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True, cwd=cwd)


@pytest.fixture
def said(monkeypatch, capsys, tmp_path):
    """Runs a command that is a mistake in the use of options; returns its line."""
    from gpf.cli import main

    def run(*arguments):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["gpf", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        line = capsys.readouterr().err
        assert ended.value.code == 2
        assert line.count("\n") == 1
        return line.strip()

    return run


# Names


def test_names_that_are_known_without_heavy_imports_are_the_real_ones():
    from gpf import Rules
    from gpf.cli import completion
    from gpf.navigation.policies import POLICIES
    from gpf.plume.regimes import preset

    assert tuple(POLICIES) == names.POLICIES
    assert tuple(spec.name for spec in dataclasses.fields(Rules)) == names.RULES
    with pytest.raises(ValueError, match="^stream must be one of ") as refused:
        preset("")
    listed = re.match("stream must be one of (.*), or a path", str(refused.value))
    assert {*listed[1].split(", ")} == {*completion.STREAMS}


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("train plum", "gpf: unknown task 'plum'; did you mean 'plume'?"),
        ("train --rules max_dept 4", "gpf: unknown rule 'max_dept'; did you mean 'max_depth'?"),
        (
            "train --scenario refrence",
            "gpf: unknown scenario 'refrence'; did you mean 'reference'?",
        ),
        ("train plume --scenario=refrence", "gpf: unknown scenario 'refrence'; did you mean 'reference'?"),
        ("evaluate randm", "gpf: unknown policy 'randm'; did you mean 'random'? Accepted: random, reactive, cast-and"),
        ("evaluate --scenarios refrence", "gpf: unknown scenario 'refrence'; did you mean 'reference'?"),
        ("evaluate --set wind_sped=2", "gpf: unknown scenario field 'wind_sped'; did you mean 'wind_speed'?"),
        ("compare cifar", "gpf: unknown task 'cifar'; did you mean 'cifar10'? (or a .toml file of agents)"),
        ("compare --scenarios refrence", "gpf: unknown scenario 'refrence'; did you mean 'reference'?"),
        ("compare --sed 3", "gpf compare: unknown option --sed; did you mean --seeds?"),
        ("reproduce --scenario refrence", "gpf: unknown scenario 'refrence'; did you mean 'reference'?"),
        ("world pln", "gpf world: unknown command 'pln'; did you mean 'plan'? Accepted: data, evaluate, plan, dream"),
        ("world", "gpf world needs a COMMAND: data, evaluate, plan, dream"),
        ("lst", "gpf: unknown command 'lst'; did you mean 'list'?"),
    ],
)
def test_a_misspelled_name_is_answered_before_torch_and_numba_are_imported(line, answer, tmp_path):
    done = python("-c", HEAVY, *line.split(), cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(answer)
    assert done.stderr.count("\n") == 1
    assert done.stdout == "light\n"


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("train --sed 3", "gpf train: unknown option --sed; did you mean --seed?"),
        ("train --steps many", "gpf train: --steps must be a whole number, got 'many'"),
        ("train --steps", "gpf train: --steps needs a value: a whole number"),
        ("train --learner online --lanes 4",
         "gpf train: --lanes is an option of --learner policy-gradient and recurrent and parallel only"),
        ("train cifar10 --epocs 3", "gpf train cifar10: unknown option --epocs; did you mean --epochs?"),
        ("world plan", "gpf world plan: RUN is missing: folder of a run that gpf train world made"),
    ],
)  # fmt: skip
def test_a_mistake_in_the_options_is_one_sentence(line, answer, said):
    assert said(*line.split()) == answer


def test_a_million_may_be_written_as_1e6(gpf, monkeypatch):
    asked = []
    monkeypatch.setattr("gpf.cli.train._train_one", lambda task, command: asked.append(command.config) or {})
    gpf("train", "--steps", "1e6")
    assert asked[0].learner.steps == 1_000_000


# Version and help


def test_the_version_names_all_that_results_depend_on(gpf):
    assert re.fullmatch(r"gpf \d\S* \(torch \S+, numpy \S+, numba \S+, Python \S+\)\n", gpf("--version"))


EVERY = [
    *([name] for name in COMMANDS),
    *(["train", task] for task in REGISTRY),
    *(["world", name] for name in ("data", "evaluate", "plan", "dream")),
    ["train", "--learner", "online"],
    ["train", "--learner", "parallel"],
]


@pytest.mark.parametrize("command", EVERY, ids=" ".join)
def test_the_help_of_every_command_explains_every_option_in_plain_words(command, gpf, capsys):
    with pytest.raises(SystemExit) as ended:
        gpf(*command, "--help")
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: gpf {command[0]}")
    assert not re.search(r"`|<class|NoneType|default: None|default: \)|\{None\}|object at 0x", text)
    for flag, words in re.findall(r"^  (--[\w-]+).*?(?:  +|\n  +)(\S.*)?$", text, re.MULTILINE):
        assert words, flag
        assert not words.startswith(("(default", "Of ")), (flag, words)


# List


@pytest.fixture
def runs(tmp_path, plume_run):
    for name in ("runs/new", "runs/deep/er/old"):
        shutil.copytree(plume_run, tmp_path / name)
    (tmp_path / "runs/new/result.json").unlink()
    (tmp_path / "runs/broken").mkdir()
    (tmp_path / "runs/broken/config.json").write_text("{")
    (tmp_path / "runs/empty").mkdir()
    return tmp_path / "runs"


def test_list_finds_runs_and_says_how_far_each_is(runs, gpf):
    found = {row["run"]: row for row in json.loads(gpf("list", "--json"))["runs"]}
    assert set(found) == {"runs/new", "runs/deep/er/old", "runs/broken"}
    old, new = found["runs/deep/er/old"], found["runs/new"]
    result = json.loads((runs / "deep/er/old/result.json").read_text())
    assert (old["task"], old["seed"], old["steps"]) == ("plume", 0, result["step"])
    assert old["score"] == {"success": result["success"]}
    assert (old["finished"], old["running"], new["finished"], new["running"]) == (True, False, False, False)
    assert new["steps"] == result["step"]
    assert new["score"] is None
    assert "damaged" in found["runs/broken"]
    with contextlib.closing(Run.open(runs / "new")):
        assert json.loads(gpf("list", "--json", "--sort", "name"))["runs"][2]["running"]
    printed = gpf("list", "--sort", "name")
    assert re.search(r"runs/broken +- +- +- +damaged: config.json is damaged", printed)
    assert re.search(rf"runs/deep/er/old +plume +0 +{result['step']:,} +success {result['success']:.1%} +yes", printed)
    assert re.search(rf"runs/new +plume +0 +{result['step']:,} +- +no", printed)


def test_list_says_where_there_are_none(tmp_path, gpf, mistake):
    (tmp_path / "runs").mkdir()
    assert gpf("list") == "no runs in runs\n"
    assert "nowhere is not a folder" in mistake("list", "nowhere")


def test_a_hundred_runs_are_listed_at_once_without_torch(tmp_path, plume_run):
    for n in range(100):
        folder = tmp_path / "runs" / str(n)
        folder.mkdir(parents=True)
        for name in ("config.json", "metrics.jsonl", "result.json"):
            shutil.copy(plume_run / name, folder)
    done = python("-c", HEAVY, "list", cwd=tmp_path)
    assert done.stdout.count(" plume ") == 100
    assert done.stdout.endswith("light\n")


# Evaluate


def test_several_policies_and_scenarios_are_one_table(tmp_path, gpf, short_world):
    line = ["evaluate", "random", "cast-and-surge", "--scenarios", short_world, "paper", "--set", "max_steps=40",
            "--episodes", "20"]  # fmt: skip
    told = json.loads(gpf(*line, "--json"))["evaluations"]
    assert [(one["policy"], one["scenario"]) for one in told] == [
        (policy, where) for policy in ("random", "cast-and-surge") for where in (str(short_world), "paper")
    ]
    assert all(one["set"] == ["max_steps=40"] and Path(tmp_path, one["figure"]).exists() for one in told)
    assert len({one["figure"] for one in told}) == 4
    printed = gpf(*line)
    assert "20 held-out episodes each, with max_steps=40" in printed
    for one in told:
        rate = re.escape(f"{one['success']:.1%} [{one['low']:.1%}, {one['high']:.1%}]")
        assert re.search(rf"{one['policy']} .* {rate} +\S+ +{one['spl']:.3f} ", printed)
    alone = json.loads(gpf("evaluate", "random", "--scenarios", "paper", "--set", "max_steps=40", "--episodes", "20",
                           "--json"))  # fmt: skip
    assert {**alone, "steps_per_second": 0} == {**told[1], "steps_per_second": 0}


def test_every_evaluation_has_a_figure_of_its_own(tmp_path, gpf, short_world):
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        for name in ("w.json", "paper.json"):
            shutil.copy(short_world, tmp_path / folder / name)
    worlds = ["one/w.json", "two/w.json", "paper", "one/paper.json", "two/paper.json"]
    line = ["evaluate", "random", "--episodes", "2", "--set", "max_steps=5", "--scenarios", *worlds, "--json"]
    told = json.loads(gpf(*line))["evaluations"]
    ends = ["w", "w", "paper", "paper", "paper"]
    numbers = ["", "-2", "", "-2", "-3"]
    assert [one["figure"] for one in told] == [
        f"runs/evaluate/random-{end}-max_steps=5{number}.png" for end, number in zip(ends, numbers, strict=True)
    ]
    assert all((tmp_path / one["figure"]).exists() for one in told)


@pytest.mark.parametrize(
    ("policy", "scenario", "file"),
    [
        ("../review/a", "paper", "review-a-paper"),
        ("../../a", "../w.json", "a-w"),
        ("/tmp/.runs/a", "paper", "tmp-runs-a-paper"),
        ("./a/../b", "paper", "a-b-paper"),
    ],
)
def test_the_figure_of_an_evaluation_is_never_hidden(policy, scenario, file):
    from gpf.cli.evaluate import Pair

    assert Pair(None, Scenario(), {"policy": policy, "scenario": scenario}).file == file


def test_a_run_is_evaluated_in_its_own_world_which_can_be_changed(gpf, plume_run, short_world):
    line = ["evaluate", plume_run, "--episodes", "20", "--json"]
    own, there = json.loads(gpf(*line)), json.loads(gpf(*line, "--scenarios", short_world))
    assert (own["success"], own["scenario"]) == (there["success"], str(short_world))
    assert json.loads(gpf(*line, "--set", "success_radius=30"))["mean_steps"] == 1.0  # found at once


def test_an_evaluation_of_several_has_no_figure_or_animation_of_one(mistake):
    assert "--figure needs one" in mistake("evaluate", "random", "reactive", "--figure", "a.png")
    assert "--animation needs one" in mistake("evaluate", "--scenarios", "paper", "reference", "--animation", "a.gif")


def test_a_run_of_another_task_is_refused(tmp_path, mistake):
    (tmp_path / "runs" / "cifar10-1").mkdir(parents=True)
    (tmp_path / "runs" / "cifar10-1" / "config.json").write_text('{"task": "cifar10"}')
    for scenarios in ((), ("--scenarios", "paper")):
        assert mistake("evaluate", "runs/cifar10-1", *scenarios) == (
            "gpf: runs/cifar10-1 is a run of task 'cifar10'; gpf evaluate takes navigators (task 'plume')\n"
        )


def test_the_world_of_a_run_is_read_once_before_heavy_imports(plume_run, monkeypatch):
    from gpf.cli import evaluate

    read, original = [], evaluate._own_world
    monkeypatch.setattr(evaluate, "_own_world", lambda name: (read.append(name), original(name))[1])
    for scenarios in ((), ("paper",)):
        evaluate.Evaluate((str(plume_run), "random"), scenarios)._check()
        assert read == [str(plume_run), "random"]
        read.clear()


@pytest.mark.parametrize(
    ("assignments", "changes"),
    [
        (["wind_speed=2", "sensor_noise=2e-3"], {"wind_speed": 2.0, "sensor_noise": 0.002}),
        (["max_steps=1e3", "antennae_swapped=true"], {"max_steps": 1000, "antennae_swapped": True}),
        (["level_edges=1,2,3,4,5,6"], {"level_edges": (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)}),
        (["obstacles=2,3,1,4;6,0,0.25,8"], {"obstacles": ((2.0, 3.0, 1.0, 4.0), (6.0, 0.0, 0.25, 8.0))}),
        (["occupancy=...;.#."], {"occupancy": ("...", ".#.")}),
        (["obstacles=", "occupancy="], {}),
        ([], {}),
    ],
)
def test_fields_of_a_scenario_are_changed_by_what_is_typed(assignments, changes, gpf):
    reference = Scenario.preset("reference")
    assert reference.changed(assignments) == dataclasses.replace(reference, **changes)
    assert Scenario.from_json(gpf("scenario", "reference", "--set", *assignments)) == reference.changed(assignments)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("wind_speed", "a change of a scenario must be FIELD=VALUE, got 'wind_speed'"),
        ("wind_speed=fast", "wind_speed must be a number, got 'fast'"),
        ("wind_speed=-1", "wind_speed must be at least 0, got -1.0"),
        ("max_steps=1.5", "max_steps must be a whole number, got 1.5"),
        ("antennae_swapped=yes", "antennae_swapped must be true or false, got 'yes'"),
        ("level_edges=1,2", "level_edges must be 6 increasing numbers, got [1.0, 2.0]"),
        (
            "obstacles=1,2,3",
            "obstacles must be rectangles of four numbers, x, y, width and height, got [1.0, 2.0, 3.0]",
        ),
        ("obstacles=wall", "obstacles must be a list of rectangles, got 'wall'"),
        ("occupancy=.#;x", "occupancy must be rows of # and . of equal length, got ['.#', 'x']"),
        ("zzz=1", "unknown scenario field 'zzz'; accepted: width, height, "),
    ],
)
def test_a_wrong_change_of_a_scenario_is_one_sentence(text, answer):
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the message is compared
        Scenario().changed([text])
    assert str(error.value).startswith(answer)


# Pages on a terminal


PAGE = """# A *page* title

Words with a [link](there.md), **weight** and `code`.

![A figure](figure.png)

| agent | success [95 %] | what |
| --- | --- | --- |
| GPF | 99.9% [99.1%, 100.0%] | words |
| [one](one.md) | 7.0% [6.0%, 8.0%] | - |

- an item
"""


def test_pages_are_printed_without_the_marks_of_markdown(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    show_markdown(PAGE)
    printed = capsys.readouterr().out
    assert "Words with a link, weight and code." in printed
    assert not re.search(r"[|`#]|\*\*|---|\]\(|figure|there\.md", printed)
    assert "- an item" in printed
    rows = [line for line in printed.splitlines() if "%]" in line and "95 %" not in line]
    assert [row.index("%]") for row in rows] == [rows[0].index("%]")] * 2  # numbers are aligned on the right


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("page", ["shifting-worlds", "cifar10", "reproduction"])
def test_no_number_of_a_page_is_lost_or_broken_at_any_width(page, width, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    text = (ROOT / "docs" / "results" / f"{page}.md").read_text()
    show_markdown(text)
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= width
    assert "…" not in printed
    cells = [cell for line in text.splitlines() if line.startswith("|") for cell in line.strip("|").split("|")]
    numbers = {cell.strip() for cell in cells if re.fullmatch(r" [-+]?[\d.,]+%?( \[\S+ \S+\])? ", cell)}
    assert numbers
    for number in numbers:
        assert number in printed


# Folders that cannot be written to


@pytest.mark.parametrize(
    ("line", "option"),
    [
        ("evaluate random --figure file/figure.png", "--figure"),
        ("evaluate random --animation file/walk.gif", "--animation"),
        ("compare --page file/page", "--page"),
        ("reproduce --page file/page", "--page"),
        ("continual --page file/page", "--page"),
        ("ablate --page file/page", "--page"),
        ("world data --out file/data", "--out"),
    ],
)
def test_a_place_that_cannot_be_written_to_says_which_option_chooses_another(line, option, tmp_path, mistake):
    (tmp_path / "file").write_text("")
    assert re.search(rf"cannot write to 'file\S*' .*; choose another folder with {option}$", mistake(*line.split()))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_read_only_folder_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda *arguments: False)  # root may write everywhere
    with pytest.raises(ValueError, match=rf"^cannot write to '{tmp_path}' \(no permission\); choose another folder"):
        check_folder(tmp_path, "--page")


def test_a_file_without_permission_says_what_to_do(tmp_path, mistake, monkeypatch):
    def refuse(folder, tell):
        raise PermissionError(13, "Permission denied", str(folder / "report.html"))

    monkeypatch.setattr("gpf.tasks.report.write_report", refuse)
    assert mistake("report", "runs/plume-1") == (
        "gpf: no permission for 'runs/plume-1/report.html' (Permission denied);"
        " choose another folder, or change its permissions\n"
    )


# Completion


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    """The scripts of all shells, and a folder with a run in it."""
    from gpf.cli.completion import all_pages, bash_script, fish_script

    folder = tmp_path_factory.mktemp("completion")
    pages = all_pages()
    (folder / "gpf.bash").write_text(bash_script(pages))
    (folder / "gpf.zsh").write_text(bash_script(pages, zsh=True))
    (folder / "gpf.fish").write_text(fish_script(pages))
    for run in ("plume-1", "a b/c"):
        (folder / "runs" / run).mkdir(parents=True)
        (folder / "runs" / run / "config.json").write_text("{}")
    (folder / "mine.json").write_text("{}")
    return folder


@pytest.mark.parametrize(
    ("line", "some", "others"),
    [
        ("gpf ", ["train", "list", "completion", "--version"], ["--seed", "cifar10"]),
        ("gpf tr", ["train"], ["list"]),
        ("gpf train c", ["cifar10"], ["plume"]),
        ("gpf train ", ["cifar10", "plume"], []),
        ("gpf train --seed 3 ", [], ["cifar10", "plume"]),
        ("gpf train --seed ", [], ["cifar10", "plume"]),
        ("gpf train plume ", [], ["cifar10", "plume"]),
        ("gpf train --rules ", ["max_depth", "warmup"], ["cifar10"]),
        ("gpf train cifar10 --rules max_depth 4 gr", ["grow_patience", "grow_init"], ["warmup", "cifar10"]),
        ("gpf world --help ", [], ["data", "plan"]),
        ("gpf compare --seeds 3 ", ["cifar10"], []),
        ("gpf train --see", ["--seed", "--seeds"], ["--steps"]),
        ("gpf train --lanes 3 --q", ["--q-learning"], []),
        ("gpf train --learner ", ["online", "parallel", "policy-gradient"], ["cifar10"]),
        ("gpf train cifar10 --ep", ["--epochs"], ["--episodes"]),
        ("gpf train --no-g", ["--no-gpf"], ["--gpf"]),
        ("gpf train --resume ", ["runs/plume-1", "runs/a b/c"], ["paper"]),
        ("gpf train --from ", ["runs/plume-1", "runs/a b/c"], ["paper"]),
        ("gpf evaluate ", ["random", "cast-and-surge", "runs/plume-1"], ["paper"]),
        ("gpf evaluate runs/p", ["runs/plume-1"], ["random", "runs/a b/c"]),
        ("gpf evaluate random --scenarios reference p", ["paper"], ["runs/plume-1"]),
        ("gpf evaluate random --scenarios m", ["mine.json"], ["paper"]),
        ("gpf evaluate random --episodes 5 r", ["random", "reactive"], ["cast-and-surge"]),
        ("gpf evaluate random --checkpoint ", ["last", "best"], ["random"]),
        ("gpf compare --baselines random r", ["reactive"], ["plume"]),
        ("gpf world ", ["data", "evaluate", "plan", "dream"], ["train"]),
        ("gpf world plan --f", ["--follow"], ["--figure"]),
        ("gpf world plan ", ["runs/plume-1"], ["data"]),
        ("gpf completion ", ["bash", "zsh", "fish"], ["runs/plume-1"]),
        ("gpf scenario ", ["paper", "reference"], ["random"]),
        ("gpf plume ", ["paper", "reference"], ["random"]),
        ("gpf train --scenario = p", ["paper"], ["plume", "reference"]),
    ],
)
def test_bash_completes(line, some, others, scripts):
    words = line.split(" ")
    quoted = " ".join(f"'{word}'" for word in words)
    ask = f"source ./gpf.bash; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _gpf"
    ask += "; printf '%s\\n' \"${COMPREPLY[@]}\""
    done = subprocess.run(["bash", "--norc", "-c", ask], capture_output=True, text=True, cwd=scripts)
    assert done.stderr == ""
    answers = done.stdout.splitlines()
    assert set(some) <= set(answers)
    assert not set(others) & set(answers)


def test_the_scripts_of_all_shells_know_all_commands_and_tasks(scripts):
    for shell in ("bash", "zsh", "fish"):
        text = (scripts / f"gpf.{shell}").read_text()
        for name in (*COMMANDS, *REGISTRY, *names.POLICIES, "paper", "reference"):
            assert name in text
        if checker := shutil.which(shell):
            assert subprocess.run([checker, "-n", scripts / f"gpf.{shell}"], capture_output=True).returncode == 0


def test_fish_completes_a_task_as_the_first_word_only_and_rules(scripts):
    lines = (scripts / "gpf.fish").read_text().splitlines()
    tasks = [line for line in lines if "-a 'plume shifting " in line]
    first = "__fish_seen_subcommand_from train; and test (count (commandline -opc)) -eq 2"
    assert [line.split("'")[1] for line in tasks] == [first]
    assert any("-l rules -r -a 'warmup grow_patience " in line for line in lines)


def test_the_document_of_the_command_line_lists_every_rule():
    text = (ROOT / "docs" / "command-line.md").read_text()
    assert re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE) == list(names.RULES)


# Threads


def test_torch_and_blas_use_one_thread_unless_the_user_says_otherwise(tmp_path):
    ask = (
        "from gpf.cli.threads import use_one_thread; use_one_thread(); import numpy, torch, threadpoolctl;"
        "print(torch.get_num_threads(), *(one['num_threads'] for one in threadpoolctl.threadpool_info()))"
    )
    for chosen in (None, "2"):
        numbers = {"OMP_NUM_THREADS": chosen, "OPENBLAS_NUM_THREADS": chosen} if chosen else {}
        environment = {name: value for name, value in os.environ.items() if "NUM_THREADS" not in name}
        done = subprocess.run(
            [sys.executable, "-c", ask], capture_output=True, text=True, env={**environment, **numbers}, cwd=tmp_path
        )
        assert set(done.stdout.split()) == {chosen or "1"}, done.stderr
