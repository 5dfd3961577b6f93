"""A PPO policy of one hidden layer that grows in stable-baselines3.

python examples/sb3_growing_policy.py [--steps 10000] [--out FILE] [--quick]

Prints what grew and the mean return on CartPole before and after, also that of the policy as it is saved and loaded.
Needs: stable-baselines3
"""

import argparse
import tempfile
from pathlib import Path

import gymnasium
from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor

import gpf
from gpf.network.integrations.sb3 import GrowPruneFreezeCallback, growing_policy


def mean_return(model: PPO) -> float:
    """The mean return of ten new episodes."""
    env = Monitor(gymnasium.make("CartPole-v1"))
    env.reset(seed=1_000)
    mean, _ = evaluate_policy(model, env, n_eval_episodes=10)
    return float(mean)  # type: ignore[arg-type]


def main() -> None:
    """Learn, and say what happened."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--out", type=Path, default=Path(tempfile.mkdtemp()) / "policy.zip")
    parser.add_argument("--quick", action="store_true", help="2,500 steps")
    arguments = parser.parse_args()
    model = PPO("MlpPolicy", "CartPole-v1", n_steps=256, policy_kwargs=growing_policy(width=32), seed=0, device="cpu")
    before = mean_return(model)
    rules = gpf.Rules(mode="max", grow_patience=3, grow_threshold=20.0, max_depth=3, freeze_patience=30)
    callback = GrowPruneFreezeCallback(stack="mlp_extractor.policy_net", rules=rules)
    model.learn(2500 if arguments.quick else arguments.steps, callback=callback)
    print(*callback.net.events, callback.net, sep="\n")
    model.save(arguments.out)
    print(f"mean return: {before:.0f} before, {mean_return(model):.0f} after")
    print(f"as loaded from {arguments.out}: {mean_return(PPO.load(arguments.out, device='cpu')):.0f}")


if __name__ == "__main__":
    main()
