"""A pytest plugin for the baseline: which test runs which lines, how long it takes, and what it loads.

It is copied into a folder of its own and loaded by name (`-p recorder`), in the workers of pytest-xdist too. Coverage
has been started in every process by COVERAGE_PROCESS_START.
"""

import json
import os
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import coverage
import pytest

FIXTURE = "fixture "
"""Start of the context of a fixture that several tests share."""

seconds: dict[str, float] = {}
failed: set[str] = set()
shared_fixtures: dict[str, list[str]] = {}
_contexts = [""]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Lines run by a test are recorded under its name."""
    info = getattr(item, "_fixtureinfo", None)
    definitions = [] if info is None else [one for many in info.name2fixturedefs.values() for one in many]
    shared_fixtures[item.nodeid] = [_context_of(one) for one in definitions if one.scope != "function"]
    _enter(item.nodeid)
    try:
        return (yield)
    finally:
        _leave()


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any) -> Generator[None, object, object]:
    """Lines run by a shared fixture count for every test that asks for it, not only for the first."""
    if fixturedef.scope == "function":
        return (yield)
    _enter(_context_of(fixturedef))
    try:
        return (yield)
    finally:
        _leave()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Sum up set-up, call and tear-down; what is skipped or fails can kill nothing."""
    seconds[report.nodeid] = seconds.get(report.nodeid, 0.0) + report.duration
    if report.outcome != "passed":
        failed.add(report.nodeid)


def pytest_sessionfinish() -> None:
    """Write everything down: the workers of pytest-xdist may end without doing so."""
    running = coverage.Coverage.current()
    if running is not None:
        running.stop()
        running.save()
    record = {
        "seconds": seconds,
        "failed": sorted(failed),
        "shared_fixtures": shared_fixtures,
        "modules": [name for name in json.loads(os.environ["RECORDER_PRELOAD"]) if name in sys.modules],
    }
    (Path(os.environ["RECORDER_FOLDER"]) / f"{os.getpid()}.json").write_text(json.dumps(record))


def _context_of(definition: Any) -> str:
    return f"{FIXTURE}{definition.baseid}::{definition.argname}"


def _enter(context: str) -> None:
    _contexts.append(context)
    _switch()


def _leave() -> None:
    _contexts.pop()
    _switch()


def _switch() -> None:
    running = coverage.Coverage.current()
    if running is not None:
        running.switch_context(_contexts[-1])
