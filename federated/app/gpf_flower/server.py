"""The ServerApp: gpf's server behind a Flower strategy. It resumes from its folder after a kill."""

import json
import logging
import time
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MessageType, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import Strategy

from gpf.federated.merging import Rule
from gpf.federated.rounds import Server
from gpf.runs.folder import replace_text
from gpf_flower.plan import read_plan
from gpf_flower.records import content, read

app = ServerApp()
log = logging.getLogger("flwr")


class MergeStrategy(Strategy):
    """Sends the global network to every SuperNode, and lets gpf's server check and merge what comes back.

    Flower's FedAvg averages arrays of equal names; here networks differ in depth, masks and frozen layers, so the
    arrays that Flower passes around stay empty, and the network travels as bytes in a record.
    """

    def __init__(self, server: Server, folder: Path, clients: int, timeout: float) -> None:
        self.server, self.folder, self.clients, self.timeout = server, folder, clients, timeout
        self.asked: list[int] = []

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """A message for every SuperNode that is connected; the first round of a run waits for all clients."""
        nodes, until = sorted(grid.get_node_ids()), time.monotonic() + self.timeout
        while server_round == 1 and len(nodes) < self.clients and time.monotonic() < until:
            time.sleep(1)
            nodes = sorted(grid.get_node_ids())
        log.info("round %d: %d of %d clients are connected", self.server.round + 1, len(nodes), self.clients)
        self.asked = nodes
        request = content(self.server.request())
        return [Message(request, node, MessageType.TRAIN) for node in nodes]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Merge the answers that can be taken, log what happened to the others, and save the round."""
        answers: dict[int, bytes | str] = dict.fromkeys(self.asked, f"no answer within {self.timeout:g} seconds")
        for message in replies:  # for a node that is gone the SuperLink answers, as a node that was not asked
            if (node := message.metadata.src_node_id) in answers:
                answers[node] = read(message)
        report = self.server.finish_round((f"node {node}", data) for node, data in answers.items())
        self.server.save(self.folder)
        log.info("%s", report)
        return None, MetricRecord({"depth": report.depth, "density": report.density})

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Nothing: clients validate the global network before they learn from it."""
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Nothing."""
        return None

    def summary(self) -> None:
        """Log where the federation stands."""
        log.info("merging by %s, from round %d on", self.server.rule.average, self.server.round + 1)


@app.main()
def main(grid: Grid, context: Context) -> None:
    """All rounds that are still to come."""
    config = context.run_config
    plan, folder = read_plan(config), Path(str(config["folder"]))
    timeout = float(config["timeout"])
    server = Server(plan.first_network(), Rule(average=config["average"]), thresholds=plan.thresholds())
    server.restore(folder / "server")
    if (left := plan.rounds - server.round) > 0:
        strategy = MergeStrategy(server, folder / "server", int(config["clients"]), timeout)
        strategy.start(grid, ArrayRecord(), num_rounds=left, timeout=timeout)
    replace_text(folder / "reports.json", json.dumps([asdict(report) for report in server.reports]) + "\n")
