"""Ms Pac-Man by Expected SARSA, fully connected: four layers from the start, or one that grows to four."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor, nn
from torch.nn import functional

from gpf.network import MLP, Rules
from gpf.reports.statistics import paired_difference
from gpf.reports.tables import Measure, summary
from gpf.reports.verdicts import ENOUGH_SEEDS, Claim, Verdict
from gpf.runs.folder import Outcome, Run, read_log
from gpf.runs.training import Phase, Round
from gpf.tasks.task import BOTH, COSTS, EpochTraining, Outcomes, Task, TwoVariants, gradient_flops, of_result

SIDE, ACTIONS = 32, 9
INPUTS = SIDE * SIDE * 3
FRAMES_IN_A_STEP = 4
VALIDATION, TEST, RANDOM = 700_000_000, 1_400_000_000, 2_100_000_000
"""First seeds of episodes that are played to decide on, to report, and at random, to see what frames are like."""
LEAST_DEVIATION = 0.02
"""Minimum of a pixel, from 0 to 1; smaller deviations are raised to it."""
EXPLORING = 0.05
"""Share of random actions in those."""


@dataclass(frozen=True, kw_only=True)
class Config(TwoVariants):
    """Network that plays Ms Pac-Man, and its training; the values are the paper's."""

    layers: int = 4
    """Hidden layers: of the baseline from the start, of GPF at most."""
    width: int = 128
    """Units of a hidden layer."""
    layer_norm: bool = False
    """Apply layer normalisation to the first hidden layer."""
    normalised_pixels: bool = False
    """Normalise each pixel by its mean and standard deviation in random play."""
    epochs: int = 30
    """Number of epochs; each starts new games in all lanes."""
    steps: int = 150
    """Steps of an epoch in each lane, and maximum length of a game; a step is four frames."""
    lanes: int = 1
    """Games at the same time."""
    batch: int = 16
    """Transitions in a gradient step, drawn from those of the epoch; there is one after each step of all lanes."""
    learning_rate: float = 1e-3
    """Learning rate of Adam."""
    discount: float = 0.99
    """Discount factor per step."""
    exploration: float = 1.0
    """Share of random actions at the start."""
    exploration_decay: float = 0.995
    """Factor by which that share is multiplied after each step of all lanes."""
    least_exploration: float = 0.01
    """Minimum share of random actions."""
    reward_scale: float = 0.1
    """Factor from points of the game, where a pellet is 10, to rewards."""
    games: int = 8
    """Validation games after each epoch; four times as many are played at the end, for the result."""
    random_lanes: int = 8
    """Games of random play from which the normalisation of pixels is computed."""
    random_steps: int = 600
    """Steps of each game of random play."""

    def own_rules(self) -> Rules:
        """The paper's values; the metric is the mean reward of the games that are played after an epoch."""
        return Rules.classifier(max_depth=self.layers, mode="max", batch_decay=0.0)


LONGER_SETTINGS: dict[str, Any] = {
    "epochs": 24, "steps": 600, "lanes": 8, "batch": 64, "learning_rate": 3e-4, "layer_norm": True,
    "normalised_pixels": True, "exploration_decay": 0.9995, "least_exploration": 0.05,
}  # fmt: skip
"""Changes of a setting that learns. Most of a frame is the maze, which never changes: without normalised pixels
all frames look alike to a fully connected network, and it always does the same."""


class Training(EpochTraining[Config]):
    """A round is an epoch; the rules use the mean reward of games that are not learned from."""

    def __init__(self, run: Run, config: Config, threads: int | None = None) -> None:
        self._memory = np.empty((config.steps + 1, config.lanes, INPUTS), np.uint8)
        super().__init__(run, config)
        self._games = Games(config.lanes, config.steps)
        self._validation = Games(config.games, config.steps)

    def begin(self, extra: dict[str, Any] | None) -> None:
        """Watch random play first, if it normalises pixels."""
        if self.config.normalised_pixels and extra is None:
            model: Any = self.net.model
            model.normalise_by(random_frames(self.config.random_lanes, self.config.random_steps))

    def build(self) -> MLP:
        """The network as it is before it learns."""
        return make_model(self.config)

    def learn(self) -> Round:
        """Play an epoch, and learn after each step from what has been played in it."""
        config, now, model = self.config, self.progress, self.net.model
        random = np.random.default_rng((config.seed, now["round"]))
        memory, lanes = self._memory, config.lanes
        done: NDArray[np.int64] = np.empty((config.steps, lanes), np.int64)
        rewards, over = np.zeros((config.steps, lanes), np.float32), np.zeros((config.steps, lanes), np.bool_)
        usable = np.zeros((config.steps, lanes), np.bool_)
        games, played = self._games, list[float]()
        memory[0] = games.begin(_seed(config.seed, now["round"], 0))
        points, starting = np.zeros(lanes), np.zeros(lanes, np.bool_)
        total, count = 0.0, 0
        model.train()
        for step in range(config.steps):
            explore = max(config.least_exploration, config.exploration * config.exploration_decay ** now["step"])
            done[step] = choose(model, memory[step], explore, random)
            memory[step + 1], gained, over[step], ended = games.step(done[step])
            rewards[step], usable[step] = gained * config.reward_scale, ~starting  # the step in which a game begins
            points += gained
            played += points[ended].tolist()
            points[ended], starting = 0.0, ended
            places = np.flatnonzero(usable[: step + 1].ravel())
            chosen = random.choice(places, config.batch)
            at, lane = np.divmod(chosen, lanes)
            loss = self._learn_from(
                memory[at, lane], done[at, lane], rewards[at, lane], over[at, lane], memory[at + 1, lane], explore
            )
            total, count = total + loss, count + 1
            now["step"] += 1
        layers = [weight.numel() for _, weight in model.named_parameters() if weight.dim() > 1]
        now["flops"] += count * config.batch * gradient_flops(layers, self.net.frozen)
        scores = self._validation.play(model, _seed(config.seed, now["round"], VALIDATION), config.games)
        measured = {"loss": total / count, "exploration": explore, "played": played, "validation": scores}
        metric = float(np.mean(scores))
        return Round(measured, self.scored(metric), metric)

    def finish(self, phase: Phase) -> dict[str, Any]:
        """Points of games that nothing was decided on, of the last checkpoint."""
        config, model = self.config, self.net.model
        seed, games = _seed(config.seed, 0, TEST), Games(config.games, config.steps)
        phase("test games", 0)
        scores = games.play(model, seed, 4 * config.games)
        return {
            "test": scores,
            "reward": float(np.mean(scores)),
            "random": float(np.mean(games.play(model, seed, 4 * config.games, explore=1.0))),
            "validation": [float(np.mean(line["validation"])) for line in read_log(self.run.folder, "metrics")],
        }

    def _learn_from(
        self, seen: NDArray[np.uint8], done: NDArray[np.int64], rewards: NDArray[np.float32], over: NDArray[np.bool_],
        then: NDArray[np.uint8], explore: float,
    ) -> float:  # fmt: skip
        """One gradient step on the squared error of Expected SARSA; returns it."""
        model, optimizer = self.net.model, self.net.optimizer
        with torch.no_grad():
            values = model(scaled(then))
            expected = (1.0 - explore) * values.max(1).values + explore * values.mean(1)
            going_on = torch.from_numpy(~over).float()
            targets = torch.from_numpy(rewards) + self.config.discount * going_on * expected
        loss = functional.mse_loss(model(scaled(seen)).gather(1, torch.from_numpy(done)[:, None])[:, 0], targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return float(loss.detach())


class Games:
    """Several games of `ALE/MsPacman-v5` at once, of small colour frames."""

    def __init__(self, lanes: int, steps: int) -> None:
        try:
            from ale_py.vector_env import AtariVectorEnv
        except ImportError:
            raise ValueError("Ms Pac-Man needs the extra atari: pip install 'gpf-networks[atari]'") from None
        self.lanes = lanes
        self._env = AtariVectorEnv(
            "ms_pacman", lanes, num_threads=1, max_num_frames_per_episode=steps * FRAMES_IN_A_STEP,
            repeat_action_probability=0.25, img_height=SIDE, img_width=SIDE, grayscale=False, stack_num=1,
            frameskip=FRAMES_IN_A_STEP, maxpool=False, noop_max=0, reward_clipping=False, use_fire_reset=False,
        )  # fmt: skip

    def begin(self, seed: int) -> NDArray[np.uint8]:
        """Restart all games; returns their frames, (lanes, 3072)."""
        frames, _ = self._env.reset(seed=seed)
        return np.asarray(frames).reshape(self.lanes, INPUTS)

    def step(
        self, actions: NDArray[np.int64]
    ) -> tuple[NDArray[np.uint8], NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
        """A step of all games: frames, points, which were lost, and which ended; those restart in the next."""
        frames, points, lost, cut, _ = self._env.step(actions)
        return (
            np.asarray(frames).reshape(self.lanes, INPUTS), np.asarray(points, np.float64), np.asarray(lost),
            np.asarray(lost) | np.asarray(cut),
        )  # fmt: skip

    def play(self, model: nn.Module, seed: int, games: int, explore: float = EXPLORING) -> list[float]:
        """The points of this many games, the first in each lane, of greedy actions with a share of random ones."""
        scores: list[float] = []
        for first in range(0, games, self.lanes):
            random = np.random.default_rng(seed + first)
            frames = self.begin(seed + first)
            points, ended = np.zeros(self.lanes), np.zeros(self.lanes, np.bool_)
            while not ended.all():
                frames, gained, _, over = self.step(choose(model, frames, explore, random))
                points += np.where(ended, 0.0, gained)
                ended |= over
            scores += points.tolist()
        return scores[:games]


def scaled(frames: NDArray[np.uint8]) -> Tensor:
    """Bytes as numbers from 0 to 1."""
    return torch.from_numpy(frames).float() / 255.0


@torch.inference_mode()
def choose(
    model: nn.Module, frames: NDArray[np.uint8], explore: float, random: np.random.Generator
) -> NDArray[np.int64]:
    """The action of the greatest value, or any."""
    best: NDArray[np.int64] = model(scaled(frames)).argmax(1).numpy()
    anything = random.random(len(frames)) < explore
    return np.where(anything, random.integers(ACTIONS, size=len(frames)), best)


def _seed(seed: int, epoch: int, part: int) -> int:
    """Of the games of an epoch; no two runs and no two parts share one."""
    return part + 100_000 * seed + 100 * epoch


def random_frames(lanes: int, steps: int) -> Tensor:
    """Of some games in which all actions are random, as numbers from 0 to 1."""
    games, random = Games(lanes, steps), np.random.default_rng(0)
    frames = np.empty((steps, lanes, INPUTS), np.uint8)
    games.begin(RANDOM)
    for step in range(steps):
        frames[step] = games.step(random.integers(ACTIONS, size=lanes))[0]
    return scaled(frames.reshape(-1, INPUTS))


class NormalisedMLP(MLP):
    """An MLP that sees each of its inputs as it differs from a mean, by a deviation."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, inputs: int, width: int, outputs: int, depth: int = 1, layer_norm: bool = False) -> None:
        super().__init__(inputs, width, outputs, depth, layer_norm)
        self.register_buffer("mean", torch.zeros(inputs))
        self.register_buffer("deviation", torch.ones(inputs))

    def normalise_by(self, samples: Tensor) -> None:
        """From now on, by the means and deviations of some samples, (n, inputs)."""
        self.mean.copy_(samples.mean(0))
        self.deviation.copy_((samples.var(0) + LEAST_DEVIATION**2).sqrt())

    def forward(self, x: Tensor) -> Tensor:
        """The outputs."""
        return super().forward((x - self.mean) / self.deviation)


def make_model(config: Config) -> MLP:
    """The network as it is before it learns."""
    kind = NormalisedMLP if config.normalised_pixels else MLP
    return kind(INPUTS, config.width, ACTIONS, config.layers if config.baseline else 1, config.layer_norm)


def _claims(of: Outcomes) -> list[Claim]:
    spreads = {name: [float(np.std(one.result["validation"])) for one in runs] for name, runs in of.items()}
    about_their_means = {
        name: np.concatenate(
            [np.subtract(one.result["validation"], np.median(one.result["validation"])) for one in runs]
        )
        for name, runs in of.items()
    }
    p = 1.0  # where rewards never change, there is no variance to test
    if any(np.ptp(values) for values in about_their_means.values()):
        p = float(stats.levene(*about_their_means.values(), center="median").pvalue)
    d = paired_difference(np.log(np.maximum(spreads["GPF"], 1e-9)), np.log(np.maximum(spreads["baseline"], 1e-9)))
    interval = f" [{np.exp(d.low):.2f}, {np.exp(d.high):.2f}]" if d.seeds > 1 else ""
    return [
        Claim(
            "the volatility in validation rewards for the baseline policy is much higher than that of the dynamic GPF"
            " policy",
            f"standard deviation over epochs {summary(spreads['GPF'], '.1f')} (GPF) against"
            f" {summary(spreads['baseline'], '.1f')}, a ratio of {np.exp(d.mean):.2f}{interval}; Brown and"
            f" Forsythe's test of equal variances: p = {p:.3g}. Of training losses, by"
            f" seed, the largest of an epoch: {_largest_losses(of['GPF'])} (GPF), {_largest_losses(of['baseline'])}",
            Verdict.of_bounds(d.low, d.high, seeds=d.seeds)
            if p < 0.05 or d.seeds < ENOUGH_SEEDS
            else Verdict.UNDECIDED,
        )
    ]


def _largest_loss(outcome: Outcome) -> float:
    return max(float(line["loss"]) for line in outcome.lines)


def _largest_losses(runs: Sequence[Outcome]) -> str:
    return ", ".join(f"{_largest_loss(one):.2g}" for one in runs)


def _played(lines: Sequence[dict[str, Any]]) -> float:
    """Mean points of the games that were learned from; at first, nearly all of their actions were random."""
    return float(np.mean([points for line in lines for points in line["played"]]))


def _task(
    name: str, attribute: str, title: str, summary: str, preset: dict[str, Any], more: dict[str, Measure]
) -> Task[Config]:
    return Task(
        name=name,
        reference=f"{__name__}:{attribute}",
        title=title,
        summary=summary,
        make=Config.of,
        training=Training,
        length=lambda config: (config.epochs, "round"),
        length_setting=lambda config: "epochs",
        find_data=lambda config: Games(1, 1),
        preset=preset,
        variants=BOTH,
        variant_of=lambda config: config.variant,
        network=make_model,
        metric=lambda config: "mean points of the validation games",
        measures={
            "reward": Measure("points of a game, last checkpoint", 1, ".0f", of_result("reward")),
            "spread": Measure(
                "their standard deviation",
                0,
                ".0f",
                lambda o: float(np.std(o.result["test"])),
            ),
            **more,
            "first_played": Measure("points while learning, first epoch", 0, ".0f", lambda o: _played(o.lines[:1])),
            "last_played": Measure("last five epochs", 0, ".0f", lambda o: _played(o.lines[-5:])),
            "volatility": Measure(
                "standard deviation of validations over epochs",
                -1,
                ".0f",
                lambda o: float(np.std(o.result["validation"])),
            ),
            "largest_loss": Measure("largest training loss of an epoch", -1, ".2g", _largest_loss),
            **COSTS,
        },
        curves={
            "points of a game, validation": lambda line: float(np.mean(line["validation"])),
            "loss": lambda line: float(line["loss"]),
            "layers": lambda line: float(line["depth"]),
            "parameters that are not zero": lambda line: float(line["parameters"]),
        },
        claims=_claims,
    )


def _longer_changes() -> str:
    before = Config()
    return ", ".join(
        f"{name.replace('_', ' ')}{'' if value is True else f' {value} in place of {getattr(before, name)}'}"
        for name, value in LONGER_SETTINGS.items()
    )


TASK = _task(
    "mspacman",
    "TASK",
    "Ms Pac-Man, the paper's setting",
    "Expected SARSA on frames of 32 x 32 pixels, 3072-128x4-9, 30 epochs of one game of at most 150 steps: 4,500"
    " steps in all, too few to learn to play.",
    {},
    {},
)
LONGER = _task(
    "mspacman-longer",
    "LONGER",
    "Ms Pac-Man, a setting that learns",
    f"As in the paper's setting, except for {_longer_changes()}. Points of random play are those of the same games in"
    " which all actions are random.",
    LONGER_SETTINGS,
    {"random": Measure("of random play", 0, ".0f", of_result("random"))},
)
