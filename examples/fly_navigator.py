# %% [markdown]
# # Fly a trained navigator
#
# gpf comes with trained navigators. Here one of them searches for the source of an odour in a turbulent wind, through
# Gymnasium's interface, and a GIF shows an episode.
#
# `python examples/fly_navigator.py` runs this as a script, in a few seconds; `--quick` makes it shorter.

# %%
import sys

import gymnasium
import numpy as np

import gpf
from gpf.navigation.evaluate import film
from gpf.plume.render import save_animation

quick = "--quick" in sys.argv
navigator = gpf.load_navigator("zoo:turbulent")
print(navigator.net)

# %% [markdown]
# ## One episode, step by step
#
# The observation `raw` has what sensors say: readings of both antennae, wind, heading. The navigator keeps
# its own memory.

# %%
env = gymnasium.make("gpf/Plume-v0", scenario="turbulent", observation="raw")
observation, info = env.reset(seed=900)
navigator.reset()
print(f"the source is {info['distance']:.1f} m away")
terminated = truncated = False
steps = 0
while not (terminated or truncated):
    observation, reward, terminated, truncated, info = env.step(navigator.act(observation))
    steps += 1
print("found" if info["success"] else "not found", f"after {steps} steps")

# %% [markdown]
# ## Many episodes at once
#
# A native vector environment steps all lanes in compiled code. Observations are overwritten by the next
# step: copy what you keep.

# %%
lanes = gymnasium.make_vec(
    "gpf/Plume-v0", num_envs=16, scenario="turbulent", observation="raw", autoreset_mode="SameStep"
)
observations, infos = lanes.reset(seed=900)
navigator.reset(16)
ended, found = 0, 0
for _ in range(100 if quick else 1500):
    observations, rewards, terminations, truncations, infos = lanes.step(navigator.act(observations))
    over = terminations | truncations
    navigator.reset(mask=over)
    ended += int(over.sum())
    found += int(np.sum(infos["final_info"]["success"][over])) if over.any() else 0
print(f"{found} of {ended} episodes ended at the source")

# %% [markdown]
# ## Evaluate, and film
#
# `evaluate` uses held-out episodes. The GIF shows the filaments of the plume and the path of the agent.

# %%
summary = navigator.evaluate(episodes=20 if quick else 500).summary()
print(f"success {summary['success']:.1%} [{summary['low']:.1%}, {summary['high']:.1%}], SPL {summary['spl']:.3f}")
save_animation(film(navigator.policy, navigator.scenario, seed=901, every=50 if quick else None), "navigator.gif")
print("navigator.gif")
