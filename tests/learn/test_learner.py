import dataclasses
import math

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel

from prorl.learn.optim import GuardedAdamW
from prorl.learn.parallel import Ranks, Scorer
from prorl.types import PromptActions
from support.learners import (
    COMPILING,
    FUSED,
    HPARAMS,
    PLAIN,
    UNIFORM,
    VOCABULARY,
    action_of,
    assert_same,
    batch,
    bits_equal,
    flat,
    learner,
    numbers,
    qwen2,
    updated,
    weights,
    with_advantage,
)


@pytest.mark.parametrize(
    "changes",
    [
        {"micro_batch_tokens": 1},
        {"micro_batch_tokens": 25},
        {"micro_batch_tokens": 25, "activation_checkpointing": True},  # shares no prompts
        {"activation_checkpointing": True},
        {"logits_elements": 100},
        pytest.param({"compile": True}, marks=COMPILING),
        pytest.param({"compile": True, "activation_checkpointing": True}, marks=COMPILING),
    ],
    ids=str,
)
@pytest.mark.parametrize("old_logprobs", ["engine", "learner"])
def test_result_does_not_depend_on_how_the_batch_is_computed(changes, old_logprobs):
    hparams = dataclasses.replace(HPARAMS, mismatch="sequence_mask", updates_per_step=2)
    whole, cut = (learner(old_logprobs=old_logprobs, **PLAIN, **more) for more in ({}, changes))
    for seed in range(2):  # the second step sees a KL that is not zero
        expected, found = (updated(one, batch(seed=seed), hparams) for one in (whole, cut))
        assert numbers(found) == pytest.approx(numbers(expected), rel=1e-4, abs=1e-6)
    assert expected.kl > 0
    assert_same(cut.policy.parameters(), whole.policy.parameters(), atol=1e-6, rtol=0)


@FUSED
def test_the_fused_head_changes_nothing_but_how_entropy_is_measured():
    plain, fused = (learner(fused_head=one, logits_elements=100, **PLAIN) for one in (False, True))
    expected, found = (updated(one, batch(groups=30), HPARAMS) for one in (plain, fused))
    assert found.entropy == pytest.approx(expected.entropy, rel=0.05)  # of tokens that are drawn from near it
    assert numbers(dataclasses.replace(found, entropy=expected.entropy)) == pytest.approx(
        numbers(expected), rel=1e-4, abs=1e-6
    )
    assert_same(fused.policy.parameters(), plain.policy.parameters(), atol=1e-6, rtol=0)


@pytest.mark.parametrize(("old_logprobs", "ahead"), [("engine", 0), ("learner", 1)])
def test_every_pass_is_a_sign_of_life(old_logprobs, ahead):
    one, beats = learner(old_logprobs=old_logprobs, micro_batch_tokens=25), []
    passes = sum(len(share.passes) for share in one.deal(batch(), updates=1)[0])
    finish = one.begin_update(batch(), HPARAMS, lambda: beats.append("passed"))
    assert len(beats) == ahead * passes
    finish()
    assert len(beats) == (ahead + 1) * passes > 3


def test_one_update_is_the_gradient_of_the_written_loss():
    """A worked step: plain policy gradient without clip, moments or KL, against the loss as docs/method.md has it."""
    data, model = batch(), qwen2()
    one = learner(model, with_reference=False, old_logprobs="learner", **PLAIN)
    loss, tokens = torch.zeros(()), sum(group.action_tokens for group in data)
    for group in data:
        for action in group.actions:
            logits = model(torch.tensor([[*group.prompt, *action.tokens]])).logits[
                0, len(group.prompt) - 1 : -1
            ]
            table = (logits / HPARAMS.temperature).log_softmax(-1)
            logps = table.gather(1, torch.tensor(action.tokens)[:, None])
            loss = loss - ((logps - logps.detach()).exp() * action.advantage).sum() / tokens
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    expected = [w - 0.1 * g / (g.abs() + 1) for w, g in zip(weights(model), gradients, strict=True)]
    stats = updated(one, data, dataclasses.replace(HPARAMS, kl_coef=0.0, learning_rate=0.1, grad_clip=1e9))
    assert_same(weights(one.policy), expected, atol=1e-6, rtol=0)
    assert stats.loss == pytest.approx(loss.item(), abs=1e-6)
    assert stats.grad_norm == pytest.approx(
        math.sqrt(sum(g.square().sum().item() for g in gradients)), rel=1e-4
    )
    assert stats.updates == 1
    assert stats.skipped == stats.clip_share == 0
    assert stats.kl is None
    assert 0 < stats.entropy <= math.log(VOCABULARY)


def test_gradient_norm_is_clipped():
    hparams = dataclasses.replace(HPARAMS, kl_coef=0.0, learning_rate=1.0, grad_clip=1e-3)
    one = learner(betas=(0.0, 0.0), eps=1e6)  # the step is then the clipped gradient / eps
    before = weights(one.policy)
    stats = updated(one, batch(), hparams)
    moved = math.sqrt(
        sum((a - b).double().square().sum().item() for a, b in zip(weights(one.policy), before, strict=True))
    )
    assert stats.grad_norm > 1e-3
    assert moved <= 1.1e-9


@pytest.mark.parametrize(("groups", "wanted", "applied"), [(5, 2, 2), (5, 5, 5), (3, 8, 3), (1, 1, 1)])
def test_a_step_makes_no_more_updates_than_groups(groups, wanted, applied):
    stats = updated(learner(), batch(groups=groups), dataclasses.replace(HPARAMS, updates_per_step=wanted))
    assert stats.updates == applied
    assert stats.action_tokens == sum(group.action_tokens for group in batch(groups=groups))


def test_mini_batches_are_consecutive_updates_against_the_same_old_policy():
    data = batch(groups=4)
    together, apart = learner(), learner()
    updated(together, data, dataclasses.replace(HPARAMS, updates_per_step=2))
    for half in (data[:2], data[2:]):
        updated(apart, half, HPARAMS)
    assert bits_equal(weights(together.policy), weights(apart.policy))


def test_a_batch_without_action_tokens_touches_nothing():
    one = learner()
    before = weights(one.policy)
    silent = PromptActions(prompt=(1, 2), actions=(action_of([]),))
    for empty in ((), (silent,)):
        stats = updated(one, empty, HPARAMS)
        assert stats.mismatch_factors == {}
        assert set(flat(stats).values()) == {0, None}
        assert stats.loss is stats.kl is stats.entropy is stats.grad_norm is stats.mismatch is None
    assert bits_equal(weights(one.policy), before)


def test_an_update_that_is_not_finite_is_counted_and_changes_nothing():
    one, twin = learner(), learner()
    for each in (one, twin):
        updated(each, batch(seed=1), HPARAMS)
    before = weights(one.policy)
    broken = (with_advantage(batch()[0], math.nan), *batch(seed=3)[:1])
    stats = updated(one, broken, HPARAMS)
    assert (stats.updates, stats.skipped, stats.skipped_last, stats.loss) == (0, 1, 1, None)
    assert bits_equal(weights(one.policy), before)
    for each in (one, twin):  # the moments are untouched as well
        updated(each, batch(seed=2), HPARAMS)
    assert bits_equal(weights(one.policy), weights(twin.policy))


@pytest.mark.parametrize(
    ("loss", "gradient"), [(math.inf, 1.0), (1.0, math.inf), (math.nan, 1.0), (1.0, math.nan)]
)
def test_either_the_loss_or_the_gradient_is_enough_to_refuse_an_update(loss, gradient):
    weight = nn.Parameter(torch.ones(1))
    weight.grad = torch.full((1,), gradient)
    assert GuardedAdamW([("w", weight)], Ranks()).step(torch.tensor(loss), HPARAMS) is None
    assert weight.item() == 1


@pytest.mark.parametrize("last", [False, True])
def test_the_other_mini_batches_of_a_broken_one_still_count(last):
    groups = (with_advantage(batch()[0], math.inf), *batch(seed=3)[:1])
    broken = groups[::-1] if last else groups
    stats = updated(learner(), broken, dataclasses.replace(HPARAMS, updates_per_step=2))
    assert (stats.updates, stats.skipped, stats.skipped_last) == (1, 1, int(last))
    assert all(math.isfinite(value) for value in flat(stats).values())


def test_the_measured_kl_does_not_depend_on_the_estimator_in_the_loss():
    """Until the second update: at the reference itself the gradients of k2 and k3 are both zero."""
    stats = {}
    for estimator in ("k2", "k3"):
        one, hparams = learner(), dataclasses.replace(HPARAMS, kl_estimator=estimator, kl_coef=10.0)
        stats[estimator] = [updated(one, batch(), hparams) for _ in range(2)]
    (_, k2), (_, k3) = stats.values()
    assert k2.kl == k3.kl > 1e-6
    assert k2.loss != k3.loss


def test_without_kl_the_reference_is_not_needed():
    one = learner(with_reference=False)
    assert updated(one, batch(), dataclasses.replace(HPARAMS, kl_coef=0.0)).kl is None
    with pytest.raises(ValueError, match="holds no reference"):
        updated(one, batch(), HPARAMS)
    with pytest.raises(ValueError, match="holds no reference"):
        one.reset_reference(None, clear_optimizer=False)


@pytest.mark.parametrize("old_logprobs", ["engine", "learner"])
def test_mismatch_is_measured_against_the_policy_of_the_steps_start(old_logprobs):
    one = learner(old_logprobs=old_logprobs)
    hparams = dataclasses.replace(HPARAMS, updates_per_step=4, learning_rate=0.5, kl_coef=0.0)
    far = updated(one, batch(groups=40, engine_logp=-8.0), dataclasses.replace(hparams, learning_rate=0.0))
    near = updated(one, batch(groups=40), hparams)
    assert far.mismatch == pytest.approx(8.0 + UNIFORM, abs=0.3)
    assert far.mismatch_out_share == 1.0
    assert far.mismatch_factors["0"] > 50 > 1.5 > near.mismatch_factors["0"]
    assert near.mismatch < 0.3
    assert near.mismatch_out_share == 0.0


def test_a_snapshot_is_of_its_moment_however_late_it_is_written_and_goes_on_to_the_last_bit(tmp_path):
    one, twin, restored = learner(), learner(), learner(qwen2(initializer_range=0.1))
    for each in (one, twin):
        updated(each, batch(seed=1), HPARAMS)
    write, before = one.snapshot(), weights(one.policy)
    updated(one, batch(seed=2), HPARAMS)
    write(tmp_path)
    (tmp_path / "reference").mkdir()
    one.save_reference(tmp_path / "reference")
    restored.restore(tmp_path)
    restored.reset_reference(tmp_path / "reference", clear_optimizer=False)
    assert bits_equal(weights(restored.policy), before)
    stats = [updated(each, batch(seed=3), HPARAMS) for each in (restored, twin)]
    assert stats[0] == stats[1]  # the moments too
    assert bits_equal(weights(restored.policy), weights(twin.policy))


def test_restoring_and_saving_again_writes_the_same_bytes(tmp_path):
    one, other = learner(), learner()
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    updated(one, batch(seed=1), HPARAMS)
    one.snapshot()(first)
    other.restore(first)
    other.snapshot()(second)
    for file in first.iterdir():
        assert file.read_bytes() == (second / file.name).read_bytes()


@pytest.mark.parametrize("tied", [True, False])
def test_what_is_saved_loads_with_transformers(tmp_path, tied):
    one = learner(qwen2(tie_word_embeddings=tied))
    updated(one, batch(), HPARAMS)
    one.snapshot()(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert bits_equal(weights(loaded), weights(one.policy))


def test_reset_to_the_policy_puts_kl_back_to_zero_and_keeps_the_moments():
    one, twin = learner(), learner()
    for each in (one, twin):
        updated(each, batch(), HPARAMS)
    one.reset_reference(None, clear_optimizer=False)
    stats = [
        updated(each, batch(seed=1), dataclasses.replace(HPARAMS, kl_coef=1e-30)) for each in (one, twin)
    ]
    assert stats[0].kl == pytest.approx(0.0, abs=1e-10)
    assert stats[1].kl > 1e-6
    assert_same(weights(one.policy), weights(twin.policy), atol=1e-7, rtol=0)


def test_clearing_the_optimizer_makes_the_next_step_a_first_step():
    old, hparams = learner(), dataclasses.replace(HPARAMS, kl_coef=0.0)
    updated(old, batch(), hparams)
    old.reset_reference(None, clear_optimizer=True)
    fresh = learner()
    fresh.policy.load_state_dict(old.policy.state_dict())
    for each in (old, fresh):
        updated(each, batch(seed=1), hparams)
    assert bits_equal(weights(old.policy), weights(fresh.policy))


def test_dropout_stays_off():
    config = GPT2Config(
        n_embd=16, n_layer=2, n_head=2, vocab_size=VOCABULARY, resid_pdrop=0.5, pad_token_id=None
    )
    torch.manual_seed(0)
    one = learner(GPT2LMHeadModel(config), activation_checkpointing=True)
    first, second = (updated(one, batch(), dataclasses.replace(HPARAMS, learning_rate=0.0)) for _ in range(2))
    assert first == second


def test_bfloat16_products_stay_close():
    low, high = (updated(learner(dtype=dtype), batch(), HPARAMS) for dtype in ("bfloat16", "float32"))
    assert low.loss == pytest.approx(high.loss, abs=0.01)
    assert low.entropy == pytest.approx(high.entropy, abs=0.01)


def test_score_is_the_policys_own_log_softmax():
    one, prompt, tokens = learner(), (3, 1, 4), (1, 5, 9, 2)
    with torch.no_grad():
        table = one.policy(torch.tensor([[*prompt, *tokens]])).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
    expected = table.gather(1, torch.tensor(tokens)[:, None])[:, 0].tolist()
    assert one.score(prompt, tokens) == pytest.approx(expected, abs=1e-5)


def held(one):
    """Every tensor that a learner keeps between two steps."""
    moments = [value for state in one._optimizer._adamw.state.values() for value in state.values()]
    models = (one.policy, one._held_reference())
    return [*moments, *(weight for model in models for weight in (*model.parameters(), *model.buffers()))]


def test_everything_that_is_held_moves():
    """To no memory at all, as there is one kind here; a GPU is below."""
    one = learner()
    updated(one, batch(), HPARAMS)
    one._move(torch.device("meta"))
    assert len(held(one)) > 50
    assert {tensor.device.type for tensor in held(one)} == {"meta"}


def test_a_gpu_that_a_killed_engine_still_holds_is_waited_for(monkeypatch):
    one, waited, put = learner(), [], Scorer.put

    def full(scorer, device):
        if len(waited) < 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        put(scorer, device)

    monkeypatch.setattr("prorl.learn.learner.time.sleep", waited.append)
    monkeypatch.setattr(Scorer, "put", full)
    one.fetch()
    assert waited == [1, 2, 4]
    waited.clear()
    monkeypatch.setattr("prorl.learn.learner.MEMORY_WAITS", (1, 2))
    with pytest.raises(torch.OutOfMemoryError):
        one.fetch()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_is_left_and_taken_up_again():
    one, undisturbed = (learner(qwen2().cuda()) for _ in range(2))
    for seed in range(2):
        assert updated(one, batch(seed=seed), HPARAMS) == updated(undisturbed, batch(seed=seed), HPARAMS)
        one.stow()
        assert {tensor.device.type for tensor in held(one)} == {"cpu"}
        assert all(tensor.is_pinned() for tensor in held(one))
        one.fetch()
        assert {tensor.device.type for tensor in held(one)} == {"cuda"}
    assert bits_equal(one.policy.parameters(), undisturbed.policy.parameters())
