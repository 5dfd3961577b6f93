"""Networks that grow, prune and freeze in many places and learn from each other: merging, messages, clients, rounds."""

from gpf.federated.admission import Limits, Refused
from gpf.federated.merging import Network, Rule, merge
from gpf.federated.wire import Message, pack, unpack

__all__ = ["Limits", "Message", "Network", "Refused", "Rule", "merge", "pack", "unpack"]
