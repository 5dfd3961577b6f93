"""A ClientApp for the tests: clients that are a few lines of NumPy, and what can be wrong with them."""

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from gpf.federated import Message as Update
from gpf.federated import Network, pack, unpack
from gpf_flower.records import content, read

app = ClientApp()


def honest(request: bytes, index: int, change: Callable[[dict], object] = lambda arrays: None, **about) -> bytes:
    """An answer to a round: a random step from the network that was sent."""
    update = unpack(request)
    random = np.random.default_rng([index, update.about["round"]])
    arrays = {n: a + random.normal(size=a.shape, scale=0.01).astype(a.dtype) for n, a in update.network.arrays.items()}
    change(arrays)
    said = {
        "client": f"client-{index}", "round": update.about["round"], "examples": 10, "before": 0.5, "after": 0.5,
        "thresholds": update.about["thresholds"], **about,
    }  # fmt: skip
    return pack(Update(Network(arrays, update.network.depth), said))


def lie(data: bytes) -> bytes:
    """A manifest that says something else than its digest."""
    place = data.index(b'"depth": 1')
    return data[:place] + b'"depth": 2' + data[place + 10 :]


FAULTS: dict[str, Callable[[bytes, int], bytes]] = {
    "NaN": lambda request, n: honest(request, n, lambda a: a["head.bias"].fill(np.nan)),
    "wrong shape": lambda request, n: honest(request, n, lambda a: a.update({"head.bias": np.zeros(99, np.float32)})),
    "huge tensor": lambda request, n: honest(request, n, lambda a: a.update(huge=np.zeros(18 << 20, np.float32))),
    "lying manifest": lambda request, n: lie(honest(request, n)),
    "an older round": lambda request, n: honest(request, n, round=unpack(request).about["round"] - 1),
    "nothing": lambda request, n: b"",
}


@app.train()
def train(message: Message, context: Context) -> Message:
    """Answer as the SuperNode's configuration says."""
    index, fault = int(context.node_config["partition-id"]), context.node_config.get("fault")
    request = read(message)
    assert isinstance(request, bytes)
    if fault == "no record":
        return Message(RecordDict({"other": ConfigRecord({"message": 1})}), reply_to=message)
    if fault == "crash":
        raise RuntimeError("out of battery")
    if fault == "late" and (asked := unpack(request).about["round"]) == 2:
        saved = Path(str(context.run_config["folder"])) / "server" / f"round-{asked:05d}.gpf"
        for _ in range(600):
            if saved.exists():  # the round has ended without it
                break
            time.sleep(0.5)
    answer = FAULTS[fault](request, index) if fault in FAULTS else honest(request, index)
    return Message(content(answer), reply_to=message)
