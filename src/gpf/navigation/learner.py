"""Settings of all learners, and the base class of those that learn from rollouts in many lanes."""

from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import torch
from numpy.typing import NDArray
from torch import nn

from gpf.navigation.acting import Acting
from gpf.navigation.averaging import WeightAverage
from gpf.navigation.flat import FlatNetwork
from gpf.navigation.inputs import Observation
from gpf.navigation.rollouts import Episodes, Reward, Rollouts
from gpf.navigation.seeds import BLOCK, LANES_OF_A_SEED
from gpf.network import GrowPruneFreeze
from gpf.settings import number


@dataclass(frozen=True, kw_only=True)
class LearnerSettings:
    """Settings of every learner; each has its own defaults."""

    NAME: ClassVar[str]
    ACTING: ClassVar[tuple[Acting, ...]] = ("greedy",)
    """How its navigators can act."""
    FLAT: ClassVar[type[FlatNetwork]] = FlatNetwork
    """The policy that acts: its network, in flat memory."""
    BY_OBSERVATION: ClassVar[dict[str, dict[str, Any]]] = {}
    """Defaults that differ with the observation."""
    RULES: ClassVar[dict[str, Any]] = {}
    """Where its `gpf.Rules` differ from `Rules.plume()`; an epoch is the learner's, once there is a metric."""
    RULES_BY_OBSERVATION: ClassVar[dict[str, dict[str, Any]]] = {}
    """Rules that differ with the observation."""

    observation: Observation = "onehot"
    """Network inputs: 16 features of the recent past (`memory`), or the paper's 22 zeros and ones (`onehot`)."""
    reward: Reward = "search"
    """Reward while learning; evaluations count only whether, and how fast, the source was found."""
    loitering: float = number(0.0, 0.0, 1.0, below=True)
    """With reward `search`: worth of staying in the plume forever, as a fraction of the reward of the source."""
    acting: Acting = "greedy"
    """How the trained navigator acts: `greedy`, or `sampled` from the softmax of a policy's outputs."""
    learning_rate: float = number(1e-3, 0.0)
    """Learning rate of Adam; with many lanes it falls linearly to zero."""
    discount: float = number(0.99, 0.0, 1.0)
    """Discount factor per step."""
    gradient_clip: float = number(1.0, 0.0)
    """Maximum norm of the gradient; 0 for no clipping."""
    round_epochs: int = number(8, 1)
    """Epochs of a round, after which there are metrics and a checkpoint."""
    validate_every: int = number(10, 1)
    """Rounds between two validations."""
    validation_episodes: int = number(500, 1, BLOCK)
    """Episodes of a validation."""


@dataclass(frozen=True, kw_only=True)
class LaneSettings(LearnerSettings):
    """Settings of learners from rollouts: an epoch is a rollout."""

    steps: int = number(3_000_000, 1, 10**12)
    """Environment steps of the whole training, over all lanes, rounded to whole rollouts (lanes x horizon)."""
    gae_lambda: float = number(0.95, 0.0, 1.0)
    """GAE lambda, or that of the lambda-returns: 0 bootstraps after one step, 1 uses whole episodes."""
    lanes: int = number(128, 1, LANES_OF_A_SEED)
    """Number of worlds that are stepped in parallel."""
    horizon: int = number(64, 1)
    """Steps of a rollout, in each lane."""
    update_epochs: int = number(4, 1)
    """Epochs of gradient steps over each rollout."""
    minibatch: int = number(2048, 1)
    """Environment steps in a gradient step."""
    ema: float = number(0.0, 0.0, 1.0, below=True)
    """Decay per rollout of the exponential moving average (EMA) of the weights, which the trained navigator uses;
    0 turns it off."""

    @property
    def epochs(self) -> int:
        """Epochs of the whole training: rollouts."""
        return max(1, round(self.steps / (self.lanes * self.horizon)))

    def epoch_steps(self, episodes: Episodes) -> int:
        """Steps of an epoch, over all lanes, whichever episodes ended in it."""
        return self.lanes * self.horizon

    def make_optimizer(self, model: nn.Module) -> torch.optim.Adam:
        """The optimizer of a network before it learns."""
        return torch.optim.Adam(model.parameters(), lr=self.learning_rate, eps=1e-5, fused=True)


S = TypeVar("S", bound=LaneSettings)


class LaneLearner(Generic[S]):
    """Learns from rollouts in many lanes."""

    def __init__(self, model: Any, optimizer: torch.optim.Optimizer, rollouts: Rollouts, settings: S) -> None:
        self.model = model
        self.optimizer = optimizer
        self.rollouts = rollouts
        self.settings = settings
        self.network: FlatNetwork = settings.FLAT(model)
        self.average: WeightAverage | None = WeightAverage(self.network.values, settings.ema) if settings.ema else None

    def rebind(self, net: GrowPruneFreeze | None = None) -> None:
        """Take over the current network; needed after every event."""
        self.network = self.settings.FLAT(self.model)
        if self.average:
            self.average.renew(self.network.values)

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything but the network on which the next epoch depends."""
        return {**self.rollouts.state(), **(self.average.state() if self.average else {})}

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """Restore a state."""
        self.rollouts.restore(state)
        if self.average:
            self.average.restore(state, self.network.values)
