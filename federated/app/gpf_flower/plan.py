"""What all clients of a federation share, from the configuration of a Flower run."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from gpf.federated.clients import Plan


def read_plan(config: Mapping[str, Any]) -> Plan:
    """The plan; `ValueError` if a value cannot be."""
    plan = Plan.of({spec.name: config[spec.name] for spec in dataclasses.fields(Plan)})
    plan.check()
    return plan
