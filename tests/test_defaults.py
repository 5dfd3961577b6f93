"""Defaults are what the committed results were made with: a change of one is deliberate, or a mistake.

`python tests/test_defaults.py` writes tests/defaults.json anew; results that depend on what changed must be made again.
"""

import dataclasses
import json
import math
from pathlib import Path
from typing import get_args, get_type_hints

from gpf.continual.recall import Settings as RecallSettings
from gpf.navigation.config import LEARNERS, Config
from gpf.network import Rules
from gpf.plume.regimes import GENTLE, HARSH, REGIMES, RETURNING
from gpf.plume.scenario import ACTIONS, PRESETS, Scenario
from gpf.settings import plain
from gpf.studies.shifting import Plan
from gpf.tasks import REGISTRY, drifting, find_task, shifting

PRESET_RULES = ("fixed", "smaller", "plume", "classifier", "continual")
PATH = Path(__file__).with_name("defaults.json")


def defaults():
    """All defaults and bounds, as plain data."""
    navigators = [
        Config.of(learner=learner, observation=observation)
        for learner, kind in LEARNERS.items()
        for observation in get_args(get_type_hints(kind)["observation"])
    ]
    found = {
        "navigators": [config.plain() for config in navigators],
        "tasks": {name: find_task(name).of({}).plain() for name in REGISTRY},
        "rules": {
            **{f"{c.learner.NAME}, {c.learner.observation}": rules_of(c) for c in navigators},
            **{name: rules_of(find_task(name).of({})) for name in REGISTRY},
            **{kind: dataclasses.asdict(getattr(Rules, kind)()) for kind in PRESET_RULES},
            "own": dataclasses.asdict(Rules()),
        },
        "bounds": {
            **{kind.NAME: bounds(kind) for kind in LEARNERS.values()},
            **{name: bounds(type(find_task(name).of({}))) for name in REGISTRY},
            "scenario": bounds(Scenario),
        },
        "scenarios": {name: json.loads(Scenario.preset(name).to_json()) for name in PRESETS},
        "regimes": [REGIMES, GENTLE, HARSH, RETURNING, ACTIONS],
        "streams": [
            dataclasses.asdict(Plan()), plain(shifting.POLICY_GRADIENT), plain(shifting.VALUES), shifting.STRENGTHS,
            shifting.KEPT, shifting.SOFTENED, shifting.STORED, shifting.REPLAYED,
            shifting.LAYERS, shifting.WIDTH, shifting.LANES, shifting.HORIZON,
            dataclasses.asdict(RecallSettings()), drifting.STRENGTHS, drifting.CARRY, drifting.DROP,
            drifting.BATCHES_IN_AN_EPOCH,
        ],
        "variants": {name: dict(find_task(name).variants) for name in REGISTRY},
    }  # fmt: skip
    return json.loads(json.dumps(found))


def rules_of(config):
    return dataclasses.asdict(config.network_rules())


def bounds(kind):
    """The ranges that fields declare."""
    return {
        spec.name: [str(spec.metadata[key]) for key in ("low", "high")]
        for spec in dataclasses.fields(kind)
        if "low" in spec.metadata and (math.isfinite(spec.metadata["low"]) or math.isfinite(spec.metadata["high"]))
    }


def test_defaults_are_those_that_results_were_made_with():
    committed, now = json.loads(PATH.read_text()), defaults()
    assert now.keys() == committed.keys()
    for part, values in now.items():
        assert values == committed[part], part


if __name__ == "__main__":
    PATH.write_text(json.dumps(defaults(), indent=1) + "\n")
