"""What a second outside test broke: planned growth, rearranged stacks, gates, followers, casts, momentum, mistakes."""

import copy

import pytest
import torch
from helpers import assert_same, snapshot
from torch import nn
from torch.optim.swa_utils import AveragedModel

import gpf
from gpf.network import growth

X = torch.randn(32, 6, generator=torch.Generator().manual_seed(0))


def linear_stack(depth=3):
    torch.manual_seed(0)
    return nn.Sequential(nn.Sequential(*(nn.Linear(6, 6) for _ in range(depth))), nn.Linear(6, 3))


def attached(depth=3, steps=None, optimizer=torch.optim.Adam, **rules):
    model = linear_stack(depth)
    values = {"grow_patience": None, "freeze_patience": None, **rules}
    made = optimizer(model.parameters(), lr=0.01)
    return gpf.attach(model, made, "0", rules=gpf.Rules(**values), steps=steps)


def step(net):
    net.optimizer.zero_grad()
    net.model(X).square().mean().backward()
    net.optimizer.step()


def revived(net):
    return sum(int(torch.count_nonzero(w.values[w.pruned])) for layer in net.layers for w in layer.masked)


# Planned growth


def test_overdue_growths_come_together_and_none_when_nothing_would_train_them():
    net = gpf.attach(
        model := linear_stack(8), torch.optim.SGD(model.parameters(), lr=0.01), "0", rules="faster", steps=9
    )
    assert net.depth == 2
    (event,) = net.end_epoch(1.0, progress=0.5)
    assert (event.before.depth, event.after.depth, net.depth) == (2, 8, 8)
    late = gpf.attach(
        model := linear_stack(8), torch.optim.SGD(model.parameters(), lr=0.01), "0", rules="faster", steps=9
    )
    with pytest.warns(
        UserWarning, match="^training is over and 2 planned growths are not, so the network has 2 layers"
    ):
        assert late.end_epoch(1.0, progress=1.0) == []
    assert late.end_epoch(1.0, progress=1.0) == []  # it says so once


@pytest.mark.parametrize(("by", "times", "wanted"), [("double", 2, 6), ("double", 3, 14), (3, 2, 6), (1, 1, 1)])
def test_several_growths_at_once_by_hand(by, times, wanted):
    assert growth.count_new(2, by, None, times) == wanted
    assert growth.count_new(2, by, 4, times) == min(2, wanted)


def test_an_undone_growth_holds_planned_ones_too():
    net = attached(2, steps=10, grow_at=(0.1, 0.2), grow_undoable=True)
    net.end_epoch(1.0, progress=0.1)
    net.undo(hold=3)
    assert [len(net.end_epoch(1.0, progress=0.5)) for _ in range(4)] == [0, 0, 1, 0]


def test_a_growth_after_a_drop_is_the_planned_one_that_is_due():
    net = attached(2, steps=10, grow_at=(0.3,), drop=0.5, drop_window=1, mode="max")
    net.end_epoch(1.0, progress=0.1)
    assert [event.kind for event in net.end_epoch(0.1, progress=0.3)] == ["grown"]
    assert net.end_epoch(0.1, progress=0.4) == []


# Stacks whose blocks cannot take each other's places


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6))
        self.head = nn.Linear(6, 6)
        self.head.weight = self.layers[1].weight

    def forward(self, x):
        return self.head(self.layers(x))


def shared_norm():
    blocks = [nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6)) for _ in range(2)]
    blocks[1][1] = blocks[0][1]
    model = nn.Sequential()
    model.add_module("layers", nn.Sequential(*blocks))
    return model


@pytest.mark.parametrize("build", [Tied, shared_norm])
@pytest.mark.parametrize("rules", [{"grow_place": "start"}, {"grow_init": "stack"}, {"grow_init": "interleave"}])
def test_shared_parameters_are_refused_where_blocks_would_be_moved(build, rules):
    model = build()
    with pytest.raises(ValueError, match="needs blocks with parameters of their own, and some are shared; use "):
        gpf.attach(model, torch.optim.Adam(model.parameters()), rules=gpf.Rules(**rules))
    assert (
        gpf.attach(model, torch.optim.Adam(model.parameters()), rules="faster", steps=9).rules.grow_init == "identity"
    )


def test_blocks_of_several_kinds_are_refused_where_they_would_be_moved():
    from transformers import Gemma2Config, Gemma2ForCausalLM

    model = Gemma2ForCausalLM(
        Gemma2Config(
            vocab_size=50, hidden_size=16, intermediate_size=32, num_hidden_layers=3, num_attention_heads=2,
            num_key_value_heads=1, head_dim=8, sliding_window=4, pad_token_id=0,
        )
    )  # fmt: skip
    with pytest.raises(ValueError, match="^grow_place='middle' needs blocks of the same kind, and the model's"):
        gpf.attach(model, torch.optim.SGD(model.parameters()), "model.layers", rules=gpf.Rules(grow_place="middle"))


def test_attention_that_is_scaled_by_its_place_is_loaded_again_as_it_was(tmp_path):
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=11, n_positions=8, n_embd=8, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0,
            scale_attn_by_inverse_layer_idx=True,
        )
    ).eval()  # fmt: skip
    net = gpf.attach(model, torch.optim.SGD(model.parameters(), lr=0.1), "transformer.h", rules=gpf.Rules(grow_by=2))
    net.grow()
    size = 4**-0.5
    assert [block.attn.scaling for block in model.transformer.h] == pytest.approx([size / n for n in (1, 2, 3, 4)])
    for parameter in model.parameters():
        parameter.data.add_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(tmp_path)
    tokens = torch.randint(0, 11, (2, 8))
    assert torch.equal(GPT2LMHeadModel.from_pretrained(tmp_path).eval()(tokens).logits, model(tokens).logits)


@pytest.mark.parametrize("place", ["middle", "start"])
def test_gates_are_only_put_at_the_end(place):
    with pytest.raises(ValueError, match=f"^grow_place must be 'end' with grow_init='gated', got '{place}'$"):
        gpf.Rules(grow_init="gated", grow_place=place)


def test_new_blocks_join_the_group_of_the_block_before_them():
    model = linear_stack(4)
    groups = [{"params": block.parameters(), "lr": 10.0**-i} for i, block in enumerate(model[0], 1)]
    optimizer = torch.optim.SGD([*groups, {"params": model[1].parameters()}], lr=1.0)
    net = gpf.attach(model, optimizer, "0", rules=gpf.Rules(grow_place="middle"))
    net.grow()
    rates = [optimizer.param_groups[net.optimizers.find(block.weight)[0]]["lr"] for block in model[0]]
    assert rates == [0.1, 0.01, 0.01, 0.001, 0.0001]


def test_a_gate_is_never_trained_by_muon():
    model = nn.Sequential(
        nn.Sequential(*(nn.Sequential(nn.Linear(6, 6), nn.GELU()) for _ in range(2))), nn.Linear(6, 3)
    )
    matrices = torch.optim.Muon([p for p in model.parameters() if p.ndim == 2])
    others = torch.optim.AdamW([p for p in model.parameters() if p.ndim != 2])
    net = gpf.attach(model, [matrices, others], "0", rules=gpf.Rules(grow_init="gated"))
    net.grow()
    assert net.optimizers.find(model[0][2].gate)[1] is others
    model(X).sum().backward()
    matrices.step()
    others.step()


@pytest.mark.parametrize("rules", ["faster", gpf.Rules(mode="max", grow_init="gated")])
def test_what_stable_baselines3_could_not_load_is_refused(rules):
    from gpf.network.integrations.sb3 import GrowPruneFreezeCallback

    with pytest.raises(ValueError, match="^(rules must be gpf.Rules, got 'faster'|grow_init must not be 'gated')"):
        GrowPruneFreezeCallback(rules=rules)


# Followers


@pytest.mark.parametrize("rules", [{"grow_place": "middle"}, {"grow_place": "start"}, {"grow_init": "interleave"}, {}])
def test_a_follower_is_what_it_was_after_an_undone_growth(rules):
    net = attached(3, grow_undoable=True, **rules)
    average = AveragedModel(net.model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.5))
    net.follow(average)
    step(net)
    average.update_parameters(net.model)
    before = copy.deepcopy(average.module.state_dict())
    net.grow()
    net.undo()
    after = average.module.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


# Values, casts, momentum


def test_compaction_masks_what_was_written_from_outside():
    model = gpf.MLP(6, 16, 3, depth=3)
    net = gpf.attach(model, torch.optim.Adam(model.parameters()), rules=gpf.Rules(granularity="unit"))
    old = [p.detach().clone() for p in model.parameters()]
    net.prune(keep=0.25)
    smaller = sum(p.numel() for p in net.compact().parameters())
    for parameter, value in zip(model.parameters(), old, strict=True):
        parameter.data.copy_(value)
    small = net.compact()
    assert sum(p.numel() for p in small.parameters()) == smaller
    torch.testing.assert_close(small(X), model(X))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_a_pruned_model_may_be_cast(dtype):
    net = attached(3)
    step(net)
    net.prune(keep=0.5)
    net.model.to(dtype)
    net.optimizer.load_state_dict(net.optimizer.state_dict())
    net.optimizer.zero_grad()
    net.model(X.to(dtype)).square().mean().backward()
    net.optimizer.step()
    net.end_epoch(1.0)
    assert revived(net) == 0


@pytest.mark.parametrize("width", [6, 300])
def test_momentum_and_gradients_that_are_put_there_by_hand_revive_nothing(width):
    model = gpf.MLP(6, width, 3, depth=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    net = gpf.attach(model, optimizer, rules=gpf.Rules(grow_patience=None))
    net.grow()
    step(net)
    old = {p: state["momentum_buffer"].clone() for p, state in optimizer.state.items()}
    net.prune(keep=0.5)
    average = AveragedModel(model)
    net.follow(average)
    for parameter, momentum in old.items():
        optimizer.state[parameter]["momentum_buffer"] = momentum
    for _ in range(3):
        step(net)
        assert revived(net) == 0
        average.update_parameters(model)
    for layer, block in zip(net.layers, average.module.layers, strict=True):
        assert all(not block.get_parameter(w.name)[w.pruned].any() for w in layer.masked)

    def disturb(optimizer, *_):
        for parameter in model.parameters():
            parameter.grad.add_(0.1)

    optimizer.register_step_pre_hook(disturb)
    step(net)
    assert revived(net) == 0


def test_parameters_that_a_load_has_replaced_are_named_at_once():
    net = attached(2)
    with pytest.raises(ValueError, match=r"^weight of layer 0 was replaced by another tensor; attach gpf again$"):
        net.model.load_state_dict(net.model.state_dict(), assign=True)


def test_weight_norm_that_comes_after_gpf_is_named():
    net = attached(2)
    nn.utils.parametrizations.weight_norm(net.model[0][0])
    with pytest.raises(ValueError, match=r"^weight of layer 0 was replaced by another tensor; attach gpf again$"):
        net.end_epoch(1.0)


def test_modules_can_be_converted_by_swapping_their_tensors():
    net = attached(2)
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        net.detach().double()
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)


# Mistakes


def test_a_refused_attach_has_cut_nothing():
    model = linear_stack(8)
    optimizer = torch.optim.Adam(model.parameters())
    for rules, options, message in (
        ("faster", {"prunable": lambda name, parameter: True}, "^prunable must choose plain weights"),
        (gpf.Rules(start_depth=9), {}, "^start_depth must be at most the 8 layers that the model has, got 9$"),
    ):
        with pytest.raises(ValueError, match=message):
            gpf.attach(model, optimizer, "0", rules=rules, steps=100, **options)
        assert len(model[0]) == 8
        assert len(optimizer.param_groups[0]["params"]) == 18


def test_a_restart_checks_its_rules_and_counts_its_steps_anew():
    model = gpf.MLP(6, 16, 3, depth=2)
    net = gpf.attach(model, torch.optim.Adam(model.parameters()), rules=gpf.Rules(grow_patience=None))
    before = snapshot(net)
    for rules, message in (
        (gpf.Rules(grow_init="stack"), "^grow_init='stack' needs blocks of the same shape"),
        (gpf.Rules(grow_at=(0.5,)), "^steps must be given"),
        ("faster", "^rules must be gpf.Rules, got 'faster'$"),
    ):
        with pytest.raises(ValueError, match=message):
            net.restart(rules)
        assert_same(snapshot(net), before)
    step(net)
    net.restart(gpf.Rules(grow_patience=None, grow_at=(0.5,)), steps=2)
    step(net)
    assert [event.kind for event in net.end_epoch(1.0)] == ["grown"]


def test_a_growth_cannot_be_undone_when_the_model_has_changed_elsewhere():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Sequential(nn.Linear(6, 6)), nn.Sequential(nn.Linear(6, 6))

    model = Two()
    optimizer, rules = torch.optim.Adam(model.parameters()), gpf.Rules(grow_undoable=True)
    first, second = gpf.attach(model, optimizer, "a", rules=rules), gpf.attach(model, optimizer, "b", rules=rules)
    first.grow()
    second.grow()
    with pytest.raises(ValueError, match="^the model has changed outside of this stack since the growth"):
        first.undo()
    assert first.depth == 2
    second.undo()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda net, tmp: net.prune(keep="half"), "^keep must be a number from 0 to 1, got 'half'$"),
        (lambda net, tmp: net.end_epoch(1.0, progress="x"), "^progress must be a number from 0 to 1, got 'x'$"),
        (lambda net, tmp: net.follow(3), "^follow needs a copy of the model, got 3$"),
        (lambda net, tmp: net.freeze(True), "^layer must be a whole number from 0 to 1, got True$"),
        (lambda net, tmp: net.save(tmp, extra={"a": object()}), "^extra must hold tensors and plain data, got 'a' "),
    ],
)
def test_mistakes_are_one_sentence(call, message, tmp_path):
    net = attached(2)
    with pytest.raises(ValueError, match=message):
        call(net, tmp_path)
    assert (net.epoch, net.events) == (0, [])


@pytest.mark.parametrize("rules", [5, gpf.Rules, {}])
def test_what_is_no_rules_is_refused(rules):
    model = linear_stack(2)
    with pytest.raises(ValueError, match="^rules must be gpf.Rules or one of faster, smaller, got "):
        gpf.attach(model, torch.optim.Adam(model.parameters()), "0", rules=rules)
    with pytest.raises(ValueError, match="^optimizer must be a torch optimizer or a sequence of them, got None$"):
        gpf.attach(model, None, "0")


def test_a_final_depth_below_the_first_is_refused():
    with pytest.raises(ValueError, match="^start_depth must be at most max_depth, 2, got 3$"):
        gpf.Rules(start_depth=3, max_depth=2)
