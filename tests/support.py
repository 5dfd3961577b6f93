"""What tests of runs, tasks, studies and commands share."""

import json

from gpf.runs.executors import train_folder
from gpf.runs.folder import read_log, read_result

CLOCKS = ("seconds", "steps_per_second")
BUSY = {
    "warmup": "0", "grow_patience": "1", "grow_threshold": "100", "prune_patience": "1", "saliency_threshold": "0.01",
    "belief_threshold": "2",
}  # fmt: skip
"""Rules under which something happens in every round."""


class Here:
    """Trains in this process: `Local`, which has tests of its own, takes seconds to begin others."""

    def train(self, task, wanted, tell, keep_going=False):
        for folder, config in wanted.items():
            tell(folder, "begun", {})
            train_folder(task, folder, config.plain(), lambda metrics: None)
            tell(folder, "finished", read_result(folder))


def nobody(folder, what, told):
    """Whom it does not interest how runs are going."""


def without(values, *names):
    """A dictionary without some of its keys."""
    return {key: value for key, value in values.items() if key not in names}


def logs(folder):
    """The lines of a run, metrics and events, but for the clock."""
    return [[without(line, *CLOCKS) for line in read_log(folder, log)] for log in ("metrics", "events")]


def tensors(folder, checkpoint="last"):
    """The file of a checkpoint's tensors, byte by byte."""
    (file,) = (folder / "checkpoints" / checkpoint).glob("*.safetensors")
    return file.read_bytes()


def final(folder):
    """Everything that a run has left, but for the time that it took."""
    return logs(folder), tensors(folder)


def saved_round(folder):
    """The round of the last checkpoint, 0 while there is none."""
    manifest = folder / "checkpoints" / "last" / "manifest.json"
    return json.loads(manifest.read_text())["extra"]["progress"]["round"] if manifest.exists() else 0


def edit(path, change):
    """Change a JSON file: `change` is called with what it holds, and may return something else."""
    held = json.loads(path.read_text())
    changed = change(held)
    path.write_text(json.dumps(held if changed is None else changed))
