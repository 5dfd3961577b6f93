# %% [markdown]
# # Let your own network grow
#
# A regression starts with one hidden layer. Three lines attach GPF to it; the training loop stays as
# it is. The network grows when the validation loss stops improving, is pruned later, and freezes layers that
# hardly move.
#
# `python examples/attach_mlp.py` runs this as a script, in a few seconds; `--quick` makes it shorter.

# %%
import sys
import tempfile

import torch

import gpf

epochs = 12 if "--quick" in sys.argv else 50
torch.manual_seed(0)
torch.set_num_threads(1)  # fastest for a small network
x = torch.randn(2048, 6)
y = torch.tanh(x[:, :3] * x[:, 3:])
training, validation = slice(0, 1536), slice(1536, 2048)

# %% [markdown]
# ## Attach
#
# `gpf.MLP` is one of many models that work; `stack` names the blocks of another one.
# `Rules` says when to grow, prune and freeze.

# %%
model = gpf.MLP(inputs=6, width=64, outputs=3)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
rules = gpf.Rules(grow_patience=4, grow_threshold=0.003, prune_patience=4, max_depth=3)
net = gpf.attach(model, optimizer, rules=rules)

# %% [markdown]
# ## Train
#
# Nothing is new but `net.end_epoch`. It returns what happened, with the reason in numbers.

# %%
for _ in range(epochs):
    for rows in torch.randperm(1536).split(64):
        loss = torch.nn.functional.mse_loss(model(x[training][rows]), y[training][rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        validation_loss = torch.nn.functional.mse_loss(model(x[validation]), y[validation]).item()
    for event in net.end_epoch(validation_loss):
        print(event)
print(net)
print(f"validation loss {validation_loss:.3f}, {net.count_parameters():,} parameters that are not pruned")

# %% [markdown]
# ## Save and load
#
# A checkpoint is a folder of tensors with a manifest, without pickle. Training resumes from it, bit for bit.

# %%
folder = tempfile.mkdtemp()
net.save(folder)
loaded = gpf.load(folder, build=lambda: gpf.MLP(inputs=6, width=64, outputs=3))
assert torch.equal(loaded.model(x), model(x))
print(f"loaded with {loaded.depth} layers from {folder}")
