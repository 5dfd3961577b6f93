"""What several tasks' tests share."""

import dataclasses

import pytest


@pytest.fixture
def short_tasks(monkeypatch, with_data):
    """What no configuration changes is short: a round of GPT-2, its texts, and random play."""
    from gpf.tasks import mspacman, shakespeare

    monkeypatch.setattr(shakespeare, "STEPS_IN_A_ROUND", 2)
    monkeypatch.setattr(shakespeare, "VALIDATION_WINDOWS", 2)
    text = shakespeare.three_parts()
    short = dataclasses.replace(text, test=text.test[:600])
    monkeypatch.setattr(shakespeare, "three_parts", lambda: short)
    monkeypatch.setattr(mspacman, "RANDOM_LANES", 1)
    monkeypatch.setattr(mspacman, "RANDOM_STEPS", 20)
