"""Does the code still do what an earlier revision did? Short runs of all learners and tasks, before and after.

    python benchmarks/revisions.py 68be597 [--work FOLDER]

The earlier revision is checked out to a folder of its own and trains there, on this machine and with this interpreter;
so does the present code. Metrics and events that both have are compared number by number, and every tensor of the
checkpoints (weights, optimizer, beliefs, masks, learner) bit by bit. Times differ, of course. What has another name by
now is listed in RENAMED; `parameters` of navigators are those of the whole network now, and were those of its stack.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

HERE = Path(__file__).parent.parent
FEW = "--lanes 64 --steps 500000"
TRAINED = {
    "policy-gradient": f"train {FEW} --seed 3 --rules warmup 0 grow_patience 2 grow_threshold 1"
    " prune_patience 4 grow_trial 6 freeze_patience 3 freeze_delta 0.02",
    "policy-gradient, 22 inputs": f"train {FEW} --seed 4 --observation onehot",
    "parallel": f"train --learner parallel {FEW} --seed 5 --rules grow_patience 4 grow_threshold 1 prune_patience 4",
    "online": "train --learner online --episodes 700 --seed 6 --plan 200:grow 300:keep=0.5",
    "cifar10": "train cifar10 --images 2000 --epochs 8 --width 64 --rules warmup 0 grow_patience 1 grow_threshold 9"
    " prune_patience 1 weight_threshold 0.05 saliency_threshold 0.03 freeze_patience 3 freeze_delta 0.05",
    "permuted-mnist": "train permuted-mnist --tasks 3 --samples 3000",
    "shakespeare": "train shakespeare --steps 200 --layers 3 --width 16 --heads 2 --context 16",
    "mspacman": "train mspacman-longer --epochs 2 --steps 40 --lanes 2 --games 2",
}
"""What is trained, by commands that both revisions know."""
CONTINUAL = (
    "continual --streams returning --learners policy-gradient --methods gpf reset --seeds 1 --first-seed 7"
    " --episodes 500 --visits 4 --jobs 1"
)
WORLD = "--steps 600 --width 16 --heads 2 --context 16 --rules warmup 0 grow_patience 1 grow_threshold 9"
RENAMED = {"steps": "step", "said": "decisions", "reason": "reason"}
LEFT_OUT = {"seconds", "steps_per_second", "reason", "kind", "decisions"}
"""Times, and words."""


def main() -> None:
    """Train on both sides, compare, and say so."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revision")
    parser.add_argument("--work", type=Path, default=Path("runs/revisions"))
    arguments = parser.parse_args()
    work = arguments.work.resolve()
    before = work / f"checkout-{arguments.revision}"
    if not before.exists():
        subprocess.run(["git", "clone", "--quiet", str(HERE), str(before)], check=True)
        subprocess.run(["git", "-C", str(before), "checkout", "--quiet", arguments.revision], check=True)
    train_all(before, work / "before", "world train")
    train_all(HERE, work / "after", "train world")
    same = [compare(work, path.parent) for path in sorted((work / "before").rglob("config.json"))]
    print(f"{sum(same)} of {len(same)} runs are the same")
    sys.exit(0 if all(same) else 1)


def train_all(checkout: Path, work: Path, world: str) -> None:
    """All runs of one side, where they are missing."""
    for name, command in TRAINED.items():
        if not (work / name / "result.json").exists():
            gpf(checkout, [*command.split(), "--run", str(work / name)])
    gpf(checkout, [*CONTINUAL.split(), "--runs", str(work / "continual"), "--page", str(work / "page")])
    data = work.parent / "data"
    if not data.exists():
        gpf(checkout, ["world", "data", "--out", str(data), "--steps", "20000"])
    if not (work / "world" / "result.json").exists():
        gpf(checkout, [*world.split(), *WORLD.split(), "--data", str(data), "--run", str(work / "world")])


def gpf(checkout: Path, arguments: list[str]) -> None:
    """Run a command of a checkout's."""
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-m", "gpf", *arguments], env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"gpf {' '.join(arguments)}: {done.stderr}")


def compare(work: Path, folder: Path) -> bool:
    """Whether a run is the same on both sides."""
    name = folder.relative_to(work / "before")
    other = work / "after" / name
    lines = {log: (read(folder / f"{log}.jsonl"), read(other / f"{log}.jsonl")) for log in ("metrics", "events")}
    numbers = {log: differences(old, new) for log, (old, new) in lines.items()}
    counted = sum(len(leaves(line)) for old, _ in lines.values() for line in old)
    tensors, unlike = 0, []
    for checkpoint in ("best", "last"):
        if (folder / "checkpoints" / checkpoint).exists():
            old, new = (load(side / "checkpoints" / checkpoint) for side in (folder, other))
            tensors += len(old)
            missing = {key for key in old.keys() ^ new.keys() if not key.startswith("extra/")}
            changed = {key for key in old.keys() & new.keys() if not torch.equal(old[key], new[key])}
            unlike += [f"{checkpoint}: {key}" for key in sorted(missing | changed)]
    same = not any(numbers.values()) and not unlike
    events = len(lines["events"][0])
    print(
        f"{name}: {'same' if same else 'DIFFERENT'}; {len(lines['metrics'][0])} lines and {events} events with"
        f" {counted:,} values, {tensors} tensors"
    )
    for what in [*numbers["metrics"][:5], *numbers["events"][:5], *unlike[:5]]:
        print(f"    {what}")
    return same


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a log; visits of a stream, which had lines of their own, are in those of their rounds now."""
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    if lines and "visits" in lines[0]:
        return [{"round": line["round"], **visit} for line in lines for visit in line["visits"]]
    return lines


def differences(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[str]:
    """Where lines of the two sides differ in what both have."""
    if len(old) != len(new):
        return [f"{len(old)} lines before, {len(new)} after"]
    found = []
    for before, after in zip(old, new, strict=True):
        mine, theirs = leaves(before), leaves(after)
        for key in mine.keys() & theirs.keys():
            whole = key == "parameters" and "episodes" in before and "validation" in before  # of a navigator
            if mine[key] != theirs[key] and not whole:
                found.append(f"round {before['round']}: {key} {mine[key]} before, {theirs[key]} after")
        if lost := sorted(mine.keys() - theirs.keys()):
            found.append(f"round {before['round']}: {', '.join(lost)} is gone")
    return found


def leaves(line: dict[str, Any]) -> dict[str, Any]:
    """The values of a line by their names of today."""
    return {
        new: value for key, value in line.items() if (new := RENAMED.get(key, key)) not in LEFT_OUT
    }  # fmt: skip


def load(checkpoint: Path) -> dict[str, torch.Tensor]:
    """All tensors of a checkpoint."""
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    return safetensors.torch.load_file(checkpoint / manifest["tensors"]["file"])


if __name__ == "__main__":
    main()
