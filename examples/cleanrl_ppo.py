"""PPO in one file, in the style of CleanRL: any learner that speaks Gymnasium's vector API can use the native lanes.

python examples/cleanrl_ppo.py [--total-steps 500000] [--seed 1] [--quick]

Prints the success rate as it learns, and at the end that of 512 new episodes and that of a random walk. The defaults
take about half a minute on one core and find the source in 9 of 10 new episodes; a random walk finds it in 3 %.
"""

import argparse
import dataclasses
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn

import gpf  # noqa: F401 - registers the environments
from gpf.plume import Scenario


@dataclass
class Args:
    """What can be set."""

    seed: int = 1
    total_steps: int = 500_000
    """Steps of all lanes together."""
    num_envs: int = 64
    num_steps: int = 64
    """Steps of each lane between two updates."""
    learning_rate: float = 1e-3
    gamma: float = 0.99
    gae_lambda: float = 0.95
    epochs: int = 4
    minibatch: int = 1024
    clip: float = 0.2
    entropy: float = 0.01


def mlp(inputs: int, outputs: int) -> nn.Sequential:
    """Two hidden layers."""
    return nn.Sequential(nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs))


class Agent(nn.Module):
    """Actor and critic."""

    def __init__(self, inputs: int, actions: int) -> None:
        super().__init__()
        self.actor, self.critic = mlp(inputs, actions), mlp(inputs, 1)

    def policy(self, seen: Tensor) -> torch.distributions.Categorical:
        """The distribution of actions."""
        return torch.distributions.Categorical(logits=self.actor(seen), validate_args=False)

    def value(self, seen: Tensor) -> Tensor:
        """The return that is expected."""
        return self.critic(seen).squeeze(-1)


def make(args: Args, num_envs: int) -> gymnasium.vector.VectorEnv:
    """Native lanes that restart at once; `final_obs` in the infos is then the last observation of an episode."""
    scenario = Scenario.preset("reference").rewarded("search", args.gamma)
    return gymnasium.make_vec(
        "gpf/Plume-v0", num_envs=num_envs, scenario=scenario, observation="memory", autoreset_mode="SameStep"
    )


def train(args: Args) -> Agent:
    """Alternate between steps in all lanes and updates."""
    torch.manual_seed(args.seed)
    envs = make(args, args.num_envs)
    agent = Agent(16, 6)
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5)
    shape = (args.num_steps, args.num_envs)
    seen, actions = torch.zeros((*shape, 16)), torch.zeros(shape, dtype=torch.int64)
    logprobs, rewards, values, advantages, ends, tails = (torch.zeros(shape) for _ in range(6))
    found: deque[bool] = deque(maxlen=200)
    started, updates = time.perf_counter(), args.total_steps // (args.num_steps * args.num_envs)
    now = torch.tensor(envs.reset(seed=args.seed)[0])  # a copy: the next step overwrites what this one returns
    for update in range(1, updates + 1):
        optimizer.param_groups[0]["lr"] = args.learning_rate * (1 - (update - 1) / updates)
        for t in range(args.num_steps):
            with torch.no_grad():
                policy, values[t] = agent.policy(now), agent.value(now)
                seen[t], actions[t] = now, policy.sample()
                logprobs[t] = policy.log_prob(actions[t])
            observations, reward, terminated, truncated, infos = envs.step(actions[t].numpy())
            rewards[t], ends[t], tails[t] = torch.tensor(reward), torch.tensor(terminated | truncated), 0.0
            for i in np.flatnonzero(terminated | truncated):
                found.append(bool(infos["final_info"]["success"][i]))
                if not terminated[i]:  # time ran out: the last state still has its value
                    with torch.no_grad():
                        tails[t, i] = agent.value(torch.tensor(infos["final_obs"][i]))
            now = torch.tensor(observations)
        with torch.no_grad():
            following, trace = agent.value(now), torch.zeros(args.num_envs)
        for t in reversed(range(args.num_steps)):
            after = torch.where(ends[t] == 1, tails[t], following)
            trace = rewards[t] + args.gamma * after - values[t] + args.gamma * args.gae_lambda * (1 - ends[t]) * trace
            advantages[t], following = trace, values[t]
        learn(args, agent, optimizer, [x.flatten(0, 1) for x in (seen, actions, logprobs, advantages, values)])
        if update % 20 == 0 or update == updates:
            steps = update * args.num_steps * args.num_envs
            speed = steps / (time.perf_counter() - started)
            print(f"step {steps:9,}  success {np.mean(found) if found else 0:.2f}  {speed:,.0f} steps/s", flush=True)
    return agent


def learn(args: Args, agent: Agent, optimizer: torch.optim.Optimizer, batch: list[Tensor]) -> None:
    """PPO's clipped loss, in minibatches."""
    for _ in range(args.epochs):
        for chosen in torch.randperm(len(batch[0])).split(args.minibatch):
            seen, actions, logprobs, advantages, values = (part[chosen] for part in batch)
            policy = agent.policy(seen)
            ratio = (policy.log_prob(actions) - logprobs).exp()
            scaled = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
            gain = torch.min(ratio * scaled, ratio.clamp(1 - args.clip, 1 + args.clip) * scaled).mean()
            error = (agent.value(seen) - (advantages + values)).pow(2).mean()
            optimizer.zero_grad()
            (0.5 * error - gain - args.entropy * policy.entropy().mean()).backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()


def success_rate(args: Args, act: Callable[[Tensor], Tensor], episodes: int = 512) -> float:
    """The share of new episodes, one in each lane, in which the source is found."""
    envs = make(args, episodes)
    now, _ = envs.reset(seed=10**6)
    over, found = np.zeros(episodes, bool), np.zeros(episodes, bool)
    while not over.all():
        now, _, terminated, truncated, infos = envs.step(act(torch.tensor(now)).numpy())
        ended = (terminated | truncated) & ~over
        if ended.any():
            found |= ended & infos["final_info"]["success"]
        over |= ended
    return float(found.mean())


if __name__ == "__main__":
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser()
    for name, default in dataclasses.asdict(Args()).items():
        parser.add_argument(
            f"--{name.replace('_', '-')}", type=type(default), default=default, help="default: %(default)s"
        )
    parser.add_argument("--quick", action="store_true", help="two updates, 32 episodes")
    given = vars(parser.parse_args())
    quick = given.pop("quick")
    settings = Args(**given | ({"total_steps": 2 * 64 * 64} if quick else {}))
    trained, episodes = train(settings), 32 if quick else 512
    learned = success_rate(settings, lambda seen: trained.policy(seen).sample(), episodes)
    random = success_rate(settings, lambda seen: torch.randint(6, (len(seen),)), episodes)
    print(f"{episodes} new episodes: success {learned:.1%}, at random {random:.1%}")
