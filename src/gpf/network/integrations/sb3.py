"""stable-baselines3: a callback that grows, prunes and freezes the policies of PPO and A2C, and DQN's Q-network."""

import copy
import functools
from collections import OrderedDict
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from gpf.network import surgery
from gpf.network.controller import GrowPruneFreeze, attach
from gpf.network.events import Event
from gpf.network.integrations.restoring import checkpoint_state, restore_state
from gpf.network.rules import Rules

try:
    from stable_baselines3.common.base_class import BaseAlgorithm
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.policies import ActorCriticPolicy, BasePolicy
    from stable_baselines3.common.utils import safe_mean
    from stable_baselines3.dqn.policies import DQNPolicy
except ImportError:
    raise ImportError("gpf.network.integrations.sb3 needs stable-baselines3; pip install stable-baselines3") from None

ACTOR_CRITIC = ("mlp_extractor.policy_net", "mlp_extractor.value_net")
Q_NETWORK = "q_net.q_net"


def growing_policy(width: int = 64, depth: int = 1) -> dict[str, Any]:
    """The `policy_kwargs` of a policy that can grow without changing what it does: few layers, and ReLU between."""
    return {"net_arch": [width] * depth, "activation_fn": nn.ReLU}


class GrowPruneFreezeCallback(BaseCallback):
    """Lets the policy of PPO or A2C, or the Q-network of DQN, grow, prune and freeze while it learns.

    The metric is the mean return of the last 100 episodes. The network changes between an update and the next rollout:
    the same policy collects a rollout and learns from it. DQN's target network gets the same layers.
    `model.save`, and callbacks that call it, write a file that `PPO.load` (or A2C, or DQN) reads: at the depth that was
    reached, and with masks, frozen layers and counters, with which the next callback continues.

    Args:
        stack: `mlp_extractor.policy_net` or `mlp_extractor.value_net` of PPO and A2C, `q_net.q_net` of DQN; if not
            given, the first or the last.
        rules: When to do what; their mode must be `max`. `Rules(mode="max")` if not given.
        every_steps: Steps of the environments in an epoch of the rules, at least; 0 for a rollout each, which is short
            in DQN.
        verbose: 1 prints events.

    Attributes:
        net: The network, from the beginning of learning on.
    """

    net: GrowPruneFreeze

    def __init__(
        self, stack: str | None = None, rules: Rules | None = None, every_steps: int = 0, verbose: int = 0
    ) -> None:
        super().__init__(verbose)
        if rules is not None and not isinstance(rules, Rules):
            raise ValueError(f"rules must be gpf.Rules, got {rules!r}")
        if rules is not None and rules.grow_init == "gated":
            raise ValueError("grow_init must not be 'gated', because stable-baselines3 could not load the policy again")
        self.stack = stack
        self.rules: Rules = rules or Rules(mode="max")
        self.every_steps = every_steps
        self._epoch_began = 0
        if self.rules.mode != "max":
            raise ValueError(f"rules.mode must be 'max', because the metric is a mean return, got {self.rules.mode!r}")

    def _on_training_start(self) -> None:
        self._epoch_began = self.num_timesteps
        model = self.model
        root, path = _trained(model, self.stack)
        if hasattr(self, "net") and self.net.model is root:
            return  # it learns on
        if not isinstance(model.policy_class, InBlocks):
            model.policy_class = InBlocks(model.policy_class)  # type: ignore[assignment]
            put_in_blocks(model.policy)
        self._check_activation(root, path)
        last = surgery.find_stack(root, path)[-1]
        steps = max(1, model._total_timesteps)  # of the environments, as is the progress that the rules are told
        make = functools.partial(_like, last)
        self.net = attach(root, model.policy.optimizer, path, make, self.rules, steps=steps)
        growth = getattr(model, "gpf", None)
        if isinstance(growth, Growth) and growth.saved is not None:
            restore_state(self.net, growth.saved)
        model.gpf = Growth(self.net)  # type: ignore[attr-defined]
        if isinstance(model.policy, DQNPolicy):
            self.net.follow(model.policy.q_net_target)
        sync = _Sync(model)
        self.net.watchers.append(sync)
        sync.bring_in_line(self.net)
        model.policy.optimizer.register_state_dict_post_hook(_WithFrozen(self.net))

    def _check_activation(self, root: nn.Module, path: str) -> None:
        *_, activation = surgery.find_stack(root, path)[-1].children()
        grows_by_identity = self.rules.grow_init == "identity" and self.rules.grow_patience is not None
        if grows_by_identity and not isinstance(activation, nn.ReLU):
            raise ValueError(
                f"activation_fn must be torch.nn.ReLU for grow_init='identity', got {type(activation).__name__};"
                " policy_kwargs=growing_policy() has it"
            )

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        episodes = self.model.ep_info_buffer
        if not episodes or self.num_timesteps - self._epoch_began < max(1, self.every_steps):
            return
        self._epoch_began = self.num_timesteps
        metric = float(safe_mean([episode["r"] for episode in episodes]))
        progress = 1.0 - self.model._current_progress_remaining
        for event in self.net.end_epoch(metric, min(1.0, max(0.0, progress))):
            if self.verbose:
                print(event)
        shape = self.net.shape()
        self.logger.record("gpf/depth", shape.depth)
        self.logger.record("gpf/density", shape.density)
        self.logger.record("gpf/frozen", len(shape.frozen))


class Growth:
    """The attribute `model.gpf`, which stable-baselines3 saves: its network, or the state of a saved one."""

    __slots__ = ("net", "saved")

    def __init__(self, net: GrowPruneFreeze | None, saved: dict[str, Any] | None = None) -> None:
        self.net: GrowPruneFreeze | None = net
        self.saved: dict[str, Any] | None = saved

    def __reduce__(self) -> tuple[type, tuple[None, Any]]:
        return Growth, (None, self.saved if self.net is None else _on_cpu(checkpoint_state(self.net)))


class _Sync:
    """Keeps what belongs to the network in line with it, after each event."""

    def __init__(self, model: BaseAlgorithm) -> None:
        self.model = model

    def before(self, net: GrowPruneFreeze) -> None:
        """Nothing to do."""

    def after(self, net: GrowPruneFreeze, event: Event) -> None:
        """The network has changed."""
        self.bring_in_line(net)

    def bring_in_line(self, net: GrowPruneFreeze) -> None:
        """The data from which a saved model is built, and the optimizer's order, which is that of loading."""
        policy = self.model.policy
        self.model.policy_kwargs = {**self.model.policy_kwargs, "net_arch": _net_arch(policy)}
        for group in policy.optimizer.param_groups:
            members = {id(parameter) for parameter in group["params"]}
            group["params"] = [parameter for parameter in net.model.parameters() if id(parameter) in members]


class _WithFrozen:
    """Saves the optimizer as that of a new policy, in which no layer is frozen."""

    def __init__(self, net: GrowPruneFreeze) -> None:
        self.net = net

    def __call__(self, optimizer: Optimizer, state: dict[str, Any]) -> dict[str, Any]:
        blocks = {i: dict(self.net.layers[i].block.named_parameters()) for i in self.net.stored}
        stored = {
            id(blocks[i][name]): kept for i, names in self.net.stored.items() for name, (_, kept) in names.items()
        }
        parameters = list(self.net.model.parameters())
        states = [optimizer.state.get(one) or stored.get(id(one)) for one in parameters]
        group = {**state["param_groups"][0], "params": list(range(len(parameters)))}
        return {"state": {i: one for i, one in enumerate(states) if one}, "param_groups": [group]}


class InBlocks:
    """Makes policies whose networks are in blocks; stands for the policy class in a saved model."""

    def __init__(self, policy_class: type[BasePolicy]) -> None:
        self.policy_class = policy_class
        self.__name__: str = policy_class.__name__

    def __call__(self, *arguments: Any, **options: Any) -> BasePolicy:
        """A policy; its optimizer has the same parameters as before."""
        policy = self.policy_class(*arguments, **options)
        put_in_blocks(policy)
        return policy


def put_in_blocks(policy: BasePolicy) -> None:
    """Regroup the layers of a policy's networks in place: (Linear, activation) is a block. Parameters stay."""
    if isinstance(policy, ActorCriticPolicy):
        extractor = policy.mlp_extractor
        extractor.policy_net, extractor.value_net = map(_regrouped, (extractor.policy_net, extractor.value_net))
    elif isinstance(policy, DQNPolicy):
        for network in (policy.q_net, policy.q_net_target):
            network.q_net = _regrouped(network.q_net)


def _regrouped(network: nn.Sequential) -> nn.Sequential:
    """Blocks; if the last layer has no activation, `hidden`, which are blocks, and `head`, which is that layer."""
    if not any(isinstance(module, nn.Linear) for module in network) or hasattr(network, "hidden"):
        return network  # it has no layers, or is in blocks already
    blocks: list[list[nn.Module]] = []
    for module in network:
        if isinstance(module, nn.Linear) or not blocks:
            blocks.append([])
        blocks[-1].append(module)
    (*hidden, last) = blocks
    if len(last) > 1:
        return nn.Sequential(*(nn.Sequential(*block) for block in blocks))
    return nn.Sequential(
        OrderedDict([("hidden", nn.Sequential(*(nn.Sequential(*block) for block in hidden))), ("head", last[0])])
    )


def _like(last: nn.Module, depth: int) -> nn.Module:
    """A block as wide as the last one."""
    linear, *rest = last.children()
    assert isinstance(linear, nn.Linear)
    new = nn.Linear(linear.out_features, linear.out_features, bias=linear.bias is not None)
    return nn.Sequential(new, *map(copy.deepcopy, rest))


def _net_arch(policy: BasePolicy) -> Any:
    """The widths of the hidden layers, as stable-baselines3 gets them."""
    if isinstance(policy, ActorCriticPolicy):
        return {"pi": _widths(policy.mlp_extractor.policy_net), "vf": _widths(policy.mlp_extractor.value_net)}
    assert isinstance(policy, DQNPolicy)
    return _widths(policy.q_net.get_submodule("q_net.hidden"))


def _widths(network: nn.Module) -> list[int]:
    return [module.out_features for module in network.modules() if isinstance(module, nn.Linear)]


def _trained(model: BaseAlgorithm, stack: str | None) -> tuple[nn.Module, str]:
    """The module that the optimizer of a model trains, and the path of its stack there."""
    policy = model.policy
    if isinstance(policy, ActorCriticPolicy):
        path = stack or ACTOR_CRITIC[0]
        if path in ACTOR_CRITIC:
            return policy, path
    elif isinstance(policy, DQNPolicy):
        if stack in (None, Q_NETWORK):
            return policy.q_net, "q_net.hidden"
    else:
        raise ValueError(f"model must be PPO, A2C or DQN, with a policy of theirs, got {type(model).__name__}")
    accepted = " or ".join(ACTOR_CRITIC if isinstance(policy, ActorCriticPolicy) else (Q_NETWORK,))
    raise ValueError(f"stack must be {accepted} in {type(model).__name__}, got {stack!r}")


def _on_cpu(value: Any) -> Any:
    """The same plain data, its tensors where every machine can read them."""
    if isinstance(value, Tensor):
        return value.detach().cpu()
    if isinstance(value, dict):
        return {key: _on_cpu(one) for key, one in value.items()}
    return type(value)(map(_on_cpu, value)) if isinstance(value, list | tuple) else value
