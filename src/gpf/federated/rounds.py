"""The server's side of a round: it sends a network, checks the replies, merges them, and resumes after a kill."""

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gpf.federated.admission import Limits, Refused, check_update, number
from gpf.federated.merging import Network, Rule, merge
from gpf.federated.proposals import Thresholds, elect
from gpf.federated.wire import Message, pack, unpack
from gpf.runs.folder import replace_text

Score = Callable[[Network], float]
"""How well a merged network does, as validation says."""


@dataclass(frozen=True)
class Report:
    """The outcome of a round, as plain data."""

    round: int
    accepted: tuple[str, ...]
    refused: tuple[tuple[str, str], ...]
    """Who was refused, and why."""
    depth: int
    density: float
    frozen: tuple[int, ...]
    thresholds: Thresholds
    success: float | None
    """Mean validation success of the network that was sent, in the clients' own worlds."""
    bytes_down: int
    """Of one message of the server to one client."""
    bytes_up: int
    """Of all replies, refused ones too."""

    def __str__(self) -> str:
        refused = "".join(f"; {name} refused: {why}" for name, why in self.refused)
        return (
            f"round {self.round}: {len(self.accepted)} clients merged, depth {self.depth}, density {self.density:.3f}"
            f"{refused}"
        )


@dataclass
class Server:
    """The global network, and all other state of a server."""

    network: Network
    rule: Rule = field(default_factory=Rule)
    limits: Limits = field(default_factory=Limits)
    thresholds: Thresholds = field(default_factory=dict)
    round: int = 0
    """The last round that has ended."""
    reports: list[Report] = field(default_factory=list)

    def request(self) -> bytes:
        """The message to every client for the next round."""
        return pack(Message(self.network, {"round": self.round + 1, "thresholds": self.thresholds}))

    def finish_round(self, replies: Iterable[tuple[str, bytes | str]], score: Score | None = None) -> Report:
        """Merge the valid replies and end the round; invalid ones leave the global network untouched.

        Args:
            replies: The sender as the transport knows it, and its bytes; or, in words, why there are none.
            score: Validates merged networks: where clients differ in depth, the best one is taken. None for a vote.
        """
        sent = len(self.request())
        taken: dict[str, Message] = {}
        refused: list[tuple[str, str]] = []
        up = 0
        for sender, data in replies:
            up += len(data) if isinstance(data, bytes) else 0
            try:
                if isinstance(data, str):
                    raise Refused(data)
                message = self._admitted(data)
                if message.about["client"] in taken:
                    raise Refused(f"client must answer once, got a second answer of {message.about['client']}")
                taken[message.about["client"]] = message
            except Refused as why:
                refused.append((sender, str(why)))
        messages = [taken[name] for name in sorted(taken)]
        self.network = self._merged(messages, score)
        if self.thresholds and messages:
            gains = [m.about["after"] - m.about["before"] for m in messages]
            self.thresholds = elect(self.thresholds, [m.about["thresholds"] for m in messages], gains)
        self.round += 1
        success = float(np.mean([m.about["before"] for m in messages])) if messages else None
        report = Report(
            self.round, tuple(sorted(taken)), tuple(refused), self.network.depth, self.network.density,
            tuple(sorted(self.network.frozen)), dict(self.thresholds), success, sent, up,
        )  # fmt: skip
        self.reports.append(report)
        return report

    def _admitted(self, data: bytes) -> Message:
        """A reply that is an answer to this round, by a network that can be merged."""
        message = unpack(data, self.limits)
        about = message.about
        if not isinstance(about.get("client"), str) or not 1 <= len(about["client"]) <= 80:
            raise Refused(f"client must be a name of at most 80 letters, got {str(about.get('client'))[:40]!r}")
        asked = number(about, "round", 0, 1 << 31, whole=True)
        if asked != self.round + 1:
            raise Refused(f"round must be {self.round + 1}, got {asked:g}: the answer is late")
        number(about, "examples", 1, self.limits.examples, whole=True)
        for name in ("before", "after"):
            number(about, name, 0.0, 1.0)
        if not isinstance(about.get("thresholds"), dict) or set(about["thresholds"]) != set(self.thresholds):
            raise Refused(
                f"thresholds must be {', '.join(self.thresholds) or 'none'}, got {str(about.get('thresholds'))[:80]}"
            )
        for name in self.thresholds:
            number(about["thresholds"], name, 0.0, 1e6)
        check_update(message.network, self.network, self.limits)
        return message

    def _merged(self, messages: list[Message], score: Score | None) -> Network:
        networks = [message.network for message in messages]
        weights = [float(message.about["examples"]) for message in messages]
        depths = sorted({max(self.network.depth, network.depth) for network in networks})
        if score is None or len(depths) < 2:
            return merge(self.network, networks, weights, self.rule)
        candidates = [merge(self.network, networks, weights, self.rule, depth) for depth in depths]
        return max(candidates, key=lambda network: (score(network), -network.depth))

    # Resuming

    def save(self, folder: Path) -> None:
        """Write the state to a new file, and then let the pointer name it; a kill leaves the old or the new one."""
        folder.mkdir(parents=True, exist_ok=True)
        about = {
            "round": self.round, "thresholds": self.thresholds, "reports": [asdict(report) for report in self.reports],
        }  # fmt: skip
        name = f"round-{self.round:05d}.gpf"
        unfinished = folder / f".{name}.new"
        unfinished.write_bytes(pack(Message(self.network, about)))
        unfinished.replace(folder / name)
        replace_text(folder / "last.json", json.dumps({"file": name}) + "\n")
        for old in sorted(folder.glob("round-*.gpf"))[:-2]:
            old.unlink()

    def restore(self, folder: Path) -> bool:
        """Resume from the last saved round; false if there is none."""
        if not (folder / "last.json").exists():
            return False
        name = json.loads((folder / "last.json").read_text())["file"]
        message = unpack((folder / name).read_bytes(), Limits(manifest=1 << 30, tensors=1 << 34))
        self.network, self.round = message.network, message.about["round"]
        self.thresholds = dict(message.about["thresholds"])
        self.reports = [_report(one) for one in message.about["reports"]]
        return True


def _report(plain: dict[str, Any]) -> Report:
    return Report(**{
        **plain, "accepted": tuple(plain["accepted"]), "refused": tuple(map(tuple, plain["refused"])),
        "frozen": tuple(plain["frozen"]),
    })  # fmt: skip
