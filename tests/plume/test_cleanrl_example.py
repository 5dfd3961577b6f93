import importlib.util
import sys
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.usefixtures("one_torch_thread")


@pytest.fixture(scope="module")
def example():
    path = Path(__file__).parent.parent.parent / "examples" / "cleanrl_ppo.py"
    spec = importlib.util.spec_from_file_location("cleanrl_ppo", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["cleanrl_ppo"] = module  # dataclasses look for it
    spec.loader.exec_module(module)
    yield module
    del sys.modules["cleanrl_ppo"]


def walking_at_random(seen):
    return torch.randint(6, (len(seen),))


def test_the_example_of_ppo_runs_and_says_how_it_goes(example, capsys):
    args = example.Args(total_steps=3 * 8 * 32, num_envs=8, num_steps=32, minibatch=64)
    agent = example.train(args)
    assert all(parameter.isfinite().all() for parameter in agent.parameters())
    assert "step       768  success 0.00" in capsys.readouterr().out
    assert 0.0 <= example.success_rate(args, walking_at_random, episodes=32) < 0.3


@pytest.mark.slow
def test_the_example_of_ppo_learns_to_find_the_source(example):
    args = example.Args(total_steps=250_000)
    agent = example.train(args)
    assert example.success_rate(args, lambda seen: agent.policy(seen).sample()) > 0.5
    assert example.success_rate(args, walking_at_random) < 0.1
