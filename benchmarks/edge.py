"""What exported navigators take: latency here, and instructions, RAM and flash on an emulated Cortex-M4F.

    python benchmarks/edge.py [--parts sizes board navigators learning latency] [--emlearn FOLDER] [--quick] [--write]

`navigators` are trained, which takes some minutes if they are not in the folder `--runs` already: one without and one
with pruning, each exported in float32 and int8. The other networks have random weights, because sizes and times do not
depend on what was learned, except for the share of activations that are 0. `sizes`: what is not weights, at depths 1, 4
and 16, with one routine for all hidden layers or a function for each. `learning`: updates on the device. `board`:
instructions for each observation, RAM and flash; next to emlearn's of the same network, if
FOLDER holds its header files (`pip download emlearn --no-deps`, unzipped). `latency`: torch, onnxruntime and C.
"""

import argparse
import json
import re
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
import torch
from documents import insert
from edge_navigators import measure_learning, measure_navigators
from numpy.typing import NDArray

from gpf.edge.arrays import Array
from gpf.edge.builds import FLAGS, Library, compile_c
from gpf.edge.c import SOURCE, Sizes, replay, write_c
from gpf.edge.flights import Flight, fly
from gpf.edge.graph import FILE, make_session, write_onnx
from gpf.edge.m4 import INSTRUCTIONS, ObjectSize, measure_object, replay_on_m4, run_on_board
from gpf.edge.module import Navigating, blank_state
from gpf.edge.policy import Policy, from_network
from gpf.navigation.policies import make_policy
from gpf.network import MLP
from gpf.network.compaction.compact import compact
from gpf.plume.memory import MEMORY_SIZE
from gpf.plume.scenario import Scenario
from gpf.reports.tables import markdown_table

WORLD = Scenario.of("reference")
DEPTHS = (1, 4, 16)
PARTS = ("sizes", "board", "navigators", "learning", "latency")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--calls", type=int, default=2000, help="timed calls of each program")
    parser.add_argument("--runs", type=Path, default=Path("runs/edge"), help="folder of the trained navigators")
    parser.add_argument(
        "--quick", action="store_true", help="less training and fewer episodes and calls, to try it out"
    )
    parser.add_argument("--emlearn", type=Path, help="folder of emlearn's header files")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/edge.md")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # torch's exporter warns of its own insides
    flights = fly(make_policy("cast-and-surge"), WORLD, 8)
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        if "sizes" in arguments.parts:
            results["sizes"] = measure_sizes(Path(folder), arguments.width, flights)
        if "board" in arguments.parts:
            results["board"] = measure_board(Path(folder), arguments.width, flights, arguments.emlearn)
        if "navigators" in arguments.parts:
            results["navigators"] = measure_navigators(Path(folder), arguments.runs, arguments.quick)
        if "learning" in arguments.parts:
            results["learning"] = measure_learning(Path(folder), flights)
        if "latency" in arguments.parts:
            calls = min(arguments.calls, 100) if arguments.quick else arguments.calls
            results["latency"] = measure_latency(Path(folder), arguments.width, flights, calls)
    tables = "\n\n".join(map(table, results.values()))
    print(tables)
    if arguments.write:
        for part, rows in results.items():
            insert("docs/edge.md", f"edge_{part}", table(rows))
    if arguments.json:
        print(json.dumps(results))


def make(width: int, depth: int, pruned: float = 0.0) -> Policy:
    """A network with random weights, of which a share of each hidden layer's units and weights is pruned."""
    torch.manual_seed(0)
    model: torch.nn.Module = MLP(MEMORY_SIZE, width, 6, depth)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter, 0.0, 0.1)  # compilers leave out zeros
    if pruned:
        with torch.no_grad():
            for parameter in model.get_submodule("layers").parameters():
                if parameter.dim() > 1:
                    parameter[torch.rand(len(parameter)) < pruned] = 0.0
                    parameter[torch.rand(parameter.shape) < pruned] = 0.0
        model = compact(model, "layers")
    return from_network(model, WORLD, "memory", {"name": "benchmark"})


def built(folder: Path, policy: Policy, flights: list[Flight], **options: bool) -> tuple[Path, Sizes]:
    folder = Path(tempfile.mkdtemp(dir=folder))
    return folder, write_c(folder, policy, flights, **options)


def measure_sizes(folder: Path, width: int, flights: list[Flight]) -> list[dict[str, Any]]:
    """Bytes that are not weights, with one routine for all layers or one for each."""
    rows = []
    for depth in DEPTHS:
        policy = make(width, depth)
        row: dict[str, Any] = {"hidden layers": depth}
        for name, sequential in (("recursive", False), ("sequential", True)):
            place, sizes = built(folder, policy, flights, sequential=sequential)
            row[f"C {name}, bytes"] = measure_object(place).flash - sizes.weights
            weights = 4 * sum(layer.weight.size + layer.bias.size for layer in policy.layers)
            row[f"ONNX {name}, bytes"] = write_onnx(place, policy, flights[:1], sequential=sequential) - weights
        rows.append(row)
    return rows


def measure_board(folder: Path, width: int, flights: list[Flight], emlearn: Path | None) -> list[dict[str, Any]]:
    """Instructions for each observation, from sensors to action and of the network alone; flash and RAM."""
    sensors = flights[0].sensors[:200]
    cases = {
        "C float32": (make(width, 2), {}),
        "C int8": (make(width, 2), {"quantised": True}),
        "C float32, half of units and weights pruned": (make(width, 2, 0.5), {}),
    }
    rows = []
    for name, (policy, options) in cases.items():
        place, _ = built(folder, policy, flights, **options)
        board, size = replay_on_m4(place, sensors), measure_object(place)
        assert board.wrong == 0
        alone = network_alone(place, replay(policy, sensors)[0], OURS, "-I", str(place))
        rows.append(board_row(name, board.instructions, alone, size))
    if emlearn is not None:
        rows.append(measure_emlearn(folder, make(width, 2), sensors, emlearn))
    return rows


def board_row(name: str, whole: float | None, alone: float, size: ObjectSize) -> dict[str, Any]:
    return {
        "on the board": name,
        "instructions, sensors to action": whole,
        "instructions, network": alone,
        "flash, bytes": size.flash,
        "RAM, bytes": size.ram,
    }


OURS = """
#include "gpf_policy.c"
#define RUN for (unsigned i = 0; i < COLUMNS; ++i) activations[0][i] = inputs[n][i]; \\
    chosen[n] = (int8_t)greatest(run_network())
"""
ALONE = """
#include <stdio.h>
#include "m4_board.h"
#define COLUMNS $columns
$inputs
static int8_t chosen[$count];
$code
int main(void)
{
    uint32_t before, after;
    start_clock();
    before = SYSTICK_VALUE;
    for (int n = 0; n < $count; ++n) {
        RUN;
    }
    after = SYSTICK_VALUE;
    printf("ticks %lu %d\\n", (unsigned long)((before - after) & LONGEST), chosen[0]);
    return 0;
}
"""


def network_alone(folder: Path, inputs: NDArray[np.float32], code: str, *options: str) -> float:
    """Instructions of the network for each of some inputs, shape (n, inputs)."""
    values = {
        "columns": inputs.shape[1],
        "inputs": Array("float", "inputs", inputs),
        "count": len(inputs),
        "code": code,
    }
    program = re.sub(r"\$(\w+)", lambda found: str(values[found[1]]), ALONE)
    said = run_on_board(folder, program, *options)
    found = re.search(r"ticks (\d+)", said)
    if found is None:
        raise RuntimeError(f"the emulated board must print its clock, got {said[-300:]!r}")
    return int(found[1]) * INSTRUCTIONS / len(inputs)


def measure_emlearn(folder: Path, policy: Policy, sensors: NDArray[np.float32], headers: Path) -> dict[str, Any]:
    """The same network by emlearn, which has no part for the sensors."""
    folder = Path(tempfile.mkdtemp(dir=folder))
    arrays, layers = [], []
    for n, layer in enumerate(policy.layers):
        arrays += [Array("float", f"w{n}", layer.weight.T.ravel()), Array("float", f"b{n}", layer.bias)]
        kind = "Identity" if n == len(policy.layers) - 1 else "Relu"
        layers.append(f"{{{layer.outputs}, {layer.inputs}, w{n}, b{n}, EmlNetActivation{kind}}}")
    network = "\n".join([
        '#include "eml_net.h"', *map(str, arrays),
        f"static const EmlNetLayer layers[] = {{{', '.join(layers)}}};",
        f"static float one[{policy.width}], other[{policy.width}];",
        f"static EmlNet net = {{{len(layers)}, layers, one, other, {policy.width}}};",
        "int emlearn_predict(const float *inputs, int count) { return (int)eml_net_predict(&net, inputs, count); }",
    ])  # fmt: skip
    (folder / "gpf_policy.c").write_text(network)
    size = measure_object(folder, "-w", "-I", str(headers))
    code = (
        '#include "gpf_policy.c"\n#define PREPARE\n#define RUN chosen[n] = (int8_t)emlearn_predict(inputs[n], COLUMNS)'
    )
    options = ("-I", str(folder), "-I", str(headers))
    alone = network_alone(folder, replay(policy, sensors)[0], code, *options)
    return board_row("emlearn float32, network only", None, alone, size)


LOOP = """
#define _POSIX_C_SOURCE 199309L
#include "gpf_policy.h"
#include <stdio.h>
#include <time.h>
$inputs
int main(void)
{
    static gpf_state state;
    struct timespec before, after;
    gpf_reset(&state);
    for (int n = 0; n < $calls; ++n) {
        clock_gettime(CLOCK_MONOTONIC, &before);
        (void)gpf_greedy(&state, inputs[n % $count]);
        clock_gettime(CLOCK_MONOTONIC, &after);
        printf("%ld\\n", (after.tv_sec - before.tv_sec) * 1000000000L + after.tv_nsec - before.tv_nsec);
    }
    return 0;
}
"""


def measure_latency(folder: Path, width: int, flights: list[Flight], calls: int) -> list[dict[str, Any]]:
    """Time of an observation of one robot, us."""
    policy, sensors = make(width, 2), flights[0].sensors
    place, _ = built(folder, policy, flights)
    write_onnx(place, policy, flights[:1])
    runs: dict[str, Callable[[int], object]] = {
        "torch": _torch(policy, sensors),
        "onnxruntime, run": _onnxruntime(place, sensors),
        "onnxruntime, IO binding": _bound(place, sensors),
        "C via ctypes": _ctypes(place, sensors),
    }
    times: dict[str, list[int]] = {name: [] for name in runs} | {"C in a C loop": _loop(place, sensors, calls)}
    for n in range(calls):  # in turns
        for name, act in runs.items():
            started = time.perf_counter_ns()
            act(n % len(sensors))
            times[name].append(time.perf_counter_ns() - started)
    return [
        {"on the host": name, **{f"p{p}, us": float(np.percentile(taken, p)) / 1e3 for p in (50, 99)}}
        for name, taken in times.items()
    ]


def _torch(policy: Policy, sensors: NDArray[np.float32]) -> Callable[[int], object]:
    module, state, rows = Navigating(policy).eval(), blank_state(1), torch.from_numpy(sensors)[:, None]

    @torch.inference_mode()
    def act(n: int) -> object:
        return module(rows[n], state)

    return act


def _onnxruntime(folder: Path, sensors: NDArray[np.float32]) -> Callable[[int], object]:
    session, state = make_session(folder / FILE), blank_state(1).numpy()
    return lambda n: session.run(None, {"sensors": sensors[n : n + 1], "state": state})


def _bound(folder: Path, sensors: NDArray[np.float32]) -> Callable[[int], object]:
    session, state, held = make_session(folder / FILE), blank_state(1).numpy(), sensors[:1].copy()
    binding = session.io_binding()
    binding.bind_cpu_input("sensors", held)
    binding.bind_cpu_input("state", state)
    for output in session.get_outputs():
        binding.bind_output(output.name)

    def act(n: int) -> object:
        held[0] = sensors[n]
        binding.bind_cpu_input("sensors", held)
        return session.run_with_iobinding(binding)

    return act


def _ctypes(folder: Path, sensors: NDArray[np.float32]) -> Callable[[int], object]:
    library, lane, actions = Library(folder), np.zeros(1, np.int64), np.zeros(1, np.int64)
    library.begin([0], WORLD)
    return lambda n: library.act(sensors[n : n + 1], lane, actions)


def _loop(folder: Path, sensors: NDArray[np.float32], calls: int) -> list[int]:
    inputs = Array("float", "inputs", sensors)
    (folder / "loop.c").write_text(Template(LOOP).substitute(inputs=inputs, calls=calls, count=len(sensors)))
    program = folder / "loop"
    compile_c(["gcc", *FLAGS, str(folder / "loop.c"), str(folder / SOURCE), "-o", str(program), "-lm"])
    return [int(line) for line in subprocess.run([program], capture_output=True, check=True).stdout.split()]


def table(rows: list[dict[str, Any]]) -> str:
    return markdown_table(tuple(rows[0]), [tuple(map(cell, row.values())) for row in rows])


def cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.1f}" if value < 100.0 else f"{value:,.0f}"
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


if __name__ == "__main__":
    main()
