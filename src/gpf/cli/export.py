"""`gpf export`: a trained navigator for a robot."""

import json
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gpf.cli.options import Positional
from gpf.cli.shared import check_folder
from gpf.zoo import is_of_zoo, run_folder


@dataclass
class Export:
    """Export a trained navigator for a robot: sensor units in, action out. docs/edge.md says how to call it.

    Pruned weights and cut-off units are left out. onnx is one file; c is one header and one source file of C99;
    table is the best action for each of the 392 observations of the paper's kind. c with --learn keeps learning.
    """

    run: Positional[Path]
    """Folder of the navigator's run, or a navigator that comes with gpf, such as zoo:reference."""
    to: Literal["onnx", "c", "table"] = "c"
    """Format of the export."""
    out: Path | None = None
    """Folder of the files. Default: RUN/export/TO, or export/NAME/TO for a navigator that comes with gpf."""
    checkpoint: Literal["last", "best"] = "last"
    """The network at the end, or the one that did best in validation."""
    numbers: Literal["float32", "int8"] = "float32"
    """Weights and activations of c. int8 is calibrated on episodes."""
    sequential: bool = False
    """A function for each layer, rather than one for all of them (in ONNX, no Scan); the outputs are the same."""
    episodes: int = 20
    """Episodes that the navigator flies to calibrate int8, for the self-test and to verify ONNX."""
    learn: bool = False
    """Export a navigator that keeps learning on the robot, in C; for the value learners online and parallel."""
    max_depth: int | None = None
    """Hidden layers for which --learn makes room. Default: max_depth of the run's rules."""
    json: bool = False
    """Print one JSON object on the last line."""

    def __call__(self) -> None:
        """Write the files."""
        from gpf.runs.folder import read_config

        source = run_folder(self.run)
        read_config(source)  # refuses what is no run before anything heavy is imported
        own = Path("export", source.name) if is_of_zoo(self.run) else source / "export"
        out = own / self.to if self.out is None else self.out
        if self.out is not None:
            check_folder(self.out, "--out")
        from gpf.edge.export import export

        with warnings.catch_warnings():
            if self.to == "onnx":
                warnings.simplefilter("ignore")  # torch's exporter warns of its own insides
            said = export(
                source, self.to, out, checkpoint=self.checkpoint, numbers=self.numbers, sequential=self.sequential,
                episodes=self.episodes, learn=self.learn, max_depth=self.max_depth,
            )  # fmt: skip
        files = sorted(str(path) for path in out.iterdir() if path.is_file())
        if self.json:
            print(json.dumps({"to": self.to, "sizes": said, "files": files}))
        else:
            print(f"{self.to}: {said}")
            print(f"written: {', '.join(files)}")
