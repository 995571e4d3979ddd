"""Real vLLM on a CPU against the learner: a tiny random Qwen3 with tied embeddings."""

import dataclasses
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config

from prorl.cluster.survey import installed
from prorl.cluster.weights import collect, crc
from prorl.config.schema import DetectorsConfig
from prorl.local.backend import SyncError, halves, require_agreement
from prorl.types import Action, PromptActions
from support.cluster import (
    PROBE,
    RUNNER,
    SECOND_RUNNER,
    answers,
    ask,
    assert_log_probs,
    change,
    config_of,
    engine_settings,
    noisy_learner,
    runner_of,
    without_head,
)
from support.learners import HPARAMS, updated
from support.tiny import ENDS, write_model

pytest.importorskip("vllm")
pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("default")]

TOLERANCE = 1e-4
EMBEDDING = "model.embed_tokens.weight"


@pytest.fixture(scope="module")
def engine(model):
    from prorl.cluster.vllm_engine import VLLMEngine

    return VLLMEngine(engine_settings(config=config_of(model)))


def test_equal_models_are_read_from_the_same_place(model):
    """vLLM keeps what it has compiled under it, and a replacement must not compile again."""
    from prorl.cluster.vllm_engine import model_folder

    settings = engine_settings(config=config_of(model), eos_ids=(1, 2))
    place = model_folder(settings)
    assert model_folder(settings.model_copy(update={"max_rows": 3})) == place
    assert model_folder(settings.model_copy(update={"eos_ids": (1,)})) != place
    assert (place / "config.json").read_text() == settings.config
    assert not any("safetensors" in path.name for path in place.iterdir())


@pytest.fixture
def policy(model, request):
    """Other weights in every test, so that none can live on what an earlier one installed."""
    return noisy_learner(model, sum(request.node.name.encode()))


@pytest.fixture
def served(engine, policy):
    """Those weights, served as version 0."""
    engine.install(collect(policy.policy, 0, torch.float32))
    return policy


def probe(engine, one):
    prompt, tokens = halves(PROBE)
    require_agreement(0, engine.score(prompt, tokens), one.score(prompt, tokens), "float32")


def answered(engine, *requests):
    asked = [(request, sample) for request in requests for sample in request.numbers]
    engine.add(asked)
    found = answers(engine, [])
    while len(found) < len(asked):  # on a busy machine a poll may only say that some seconds have passed
        found |= answers(engine, [])
    return found


def test_the_model_runner_is_the_one_asked_for(engine):
    (runner,) = engine.transfer(runner_of)
    assert runner == RUNNER
    assert engine._engine.vllm_config.scheduler_config.async_scheduling is SECOND_RUNNER


def test_engine_and_learner_agree_after_every_sync(engine, policy):
    for version in range(3):
        engine.install(collect(policy.policy, version, torch.float32))
        probe(engine, policy)
        assert engine.version == version
        change(policy)


def test_a_skipped_sync_is_caught(engine, served):
    with torch.no_grad():
        next(served.policy.parameters()).mul_(1.01)
    with pytest.raises(SyncError, match="does not serve the learner's weights"):
        probe(engine, served)


def test_a_stale_head_is_caught(engine, policy):
    if installed()["vllm"] < "0.32":
        pytest.skip("a tied head is the embedding itself here")
    engine.install(without_head(collect(policy.policy, 0, torch.float32)))
    with pytest.raises(SyncError):
        probe(engine, policy)


@pytest.mark.parametrize(
    "name", [EMBEDDING, "model.layers.1.mlp.down_proj.weight", "model.layers.0.self_attn.q_proj.weight"]
)
def test_permuted_shards_are_caught(engine, policy, name):
    weights = collect(policy.policy, 0, torch.float32)
    whole = weights.arrays[name]
    swapped = torch.from_numpy(whole).roll(len(whole) // 2, 0).numpy()
    arrays = {key: swapped if array is whole else array for key, array in weights.arrays.items()}
    engine.install(dataclasses.replace(weights, arrays=arrays, checksum=crc(arrays)))
    with pytest.raises(SyncError):
        probe(engine, policy)


def test_weights_damaged_on_the_way_are_refused(engine, policy):
    weights = collect(policy.policy, 0, torch.float32)
    damaged = {name: array.copy() for name, array in weights.arrays.items()}
    damaged["model.norm.weight"][3] += 1e-7
    with pytest.raises(SyncError, match="damaged on their way"):
        engine.install(dataclasses.replace(weights, arrays=damaged))
    assert engine.version == -1


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_log_probs_are_those_of_the_distribution_sampled_from(engine, policy, temperature):
    engine.install(collect(policy.policy, 7, torch.float32))
    found = answered(engine, ask(samples=8, temperature=temperature))
    assert len({tuple(completion.tokens) for completion in found.values()}) > 4
    assert {completion.policy_version for completion in found.values()} == {7}
    assert_log_probs(policy, ask(temperature=temperature), found.values())


def test_a_response_goes_on_where_it_was_cut(engine, served):
    engine.add([(ask(samples=16, limit=40), sample) for sample in range(16)])
    ended = engine.poll()
    cut = engine.cancel()
    assert not engine.poll()
    assert len(ended) + len(cut) == 16
    assert cut
    assert {one.finish for one in cut} == {"length"}
    assert max(len(one.tokens) for one in cut) <= max(len(one.tokens) for one in ended) + 1
    more = [
        dataclasses.replace(ask(samples=1, limit=5), first=one.sample, begun=tuple(one.tokens)) for one in cut
    ]
    found = answered(engine, *more)
    assert found.keys() == {(one.draw, one.sample) for one in cut}
    assert len({tuple(one.tokens) for one in found.values()}) > len(cut) // 2  # a seed of its own for each
    for one in cut:
        later = found[one.draw, one.sample]
        whole = dataclasses.replace(one, tokens=one.tokens + later.tokens, logps=one.logps + later.logps)
        assert_log_probs(served, ask(), [whole])


def test_a_response_ends_with_an_end_token_or_at_the_limit(engine, served):
    found = answered(engine, ask(samples=16, limit=8))
    assert {completion.finish for completion in found.values()} == {"stop", "length"}
    for completion in found.values():
        assert not set(completion.tokens[:-1]) & set(ENDS)
        assert (completion.tokens[-1] in ENDS) == (completion.finish == "stop")
        assert completion.finish == "stop" or len(completion.tokens) == 8


def test_a_response_depends_on_its_seed_and_sample_alone(engine, served):
    alone = answered(engine, ask(draw=3, seed=5, samples=2))
    crowd = answered(
        engine, *(ask(draw=draw, seed=draw + 2, prompt=(5, 6, 7 + draw % 3)) for draw in range(6))
    )
    for key, completion in alone.items():
        assert crowd[key].tokens == completion.tokens
        assert crowd[key].logps == pytest.approx(completion.logps, abs=TOLERANCE)


def test_neighbouring_seeds_share_no_response(engine, served):
    """vLLM's own children of seed s are s, s + 1, …: sample 1 of seed 5 would be sample 0 of seed 6."""
    found = answered(engine, ask(draw=0, seed=5), ask(draw=1, seed=6))
    assert len({tuple(completion.tokens) for completion in found.values()}) == len(found)


def test_a_long_prompt_is_not_answered_from_a_cache_of_old_weights(engine, served):
    prompt = tuple(range(24, 24 + 150))  # longer than a block of the cache
    answered(engine, ask(prompt=prompt))
    change(served, 1.1)
    engine.install(collect(served.policy, 1, torch.float32))
    (completion,) = answered(engine, ask(prompt=prompt, samples=1, temperature=1.0)).values()
    expected = served.score(prompt, completion.tokens)
    assert completion.logps == pytest.approx(expected, abs=TOLERANCE)


def test_more_prompts_than_fit_into_one_pass(engine, served):
    """vLLM would cut the last one in two, and cannot take back the random number that the half was given."""
    prompts = [tuple(24 + (draw * 7 + at * at) % 200 for at in range(150)) for draw in range(64)]
    crowd = answered(
        engine, *(ask(draw=draw, prompt=prompt, samples=1) for draw, prompt in enumerate(prompts))
    )
    assert len(crowd) == 64
    alone = answered(engine, ask(draw=63, prompt=prompts[63], samples=1))
    assert alone[63, 0].tokens == crowd[63, 0].tokens


def test_weights_do_not_change_under_a_request(engine, served):
    engine.add([(ask(), 0)])
    with pytest.raises(RuntimeError, match="in flight"):
        engine.install(collect(served.policy, 1, torch.float32))
    while engine.poll():
        pass
    engine.install(collect(served.policy, 1, torch.float32))


def test_an_engine_that_waits_for_its_caller_answers_with_more_at_once(engine, served, monkeypatch):
    monkeypatch.setattr("prorl.cluster.vllm_engine.LONGEST", 60.0)
    engine.add([(ask(draw=limit, limit=limit), 0) for limit in (2, 20, 40)])
    assert len(engine.poll()) == 1
    time.sleep(0.5)
    assert len(engine.poll()) == 2


def test_a_long_response_shows_progress(engine, served, monkeypatch):
    monkeypatch.setattr("prorl.cluster.vllm_engine.PROGRESS_SECONDS", 0.0)
    engine.add([(ask(), 0)])
    assert engine.poll() == []
    monkeypatch.undo()
    assert [completion.draw for completion in engine.poll()] == [0]


def test_weights_are_loaded_under_the_engine_s_own_settings(engine, policy, monkeypatch):
    """As vLLM's own reload does; what a layer chooses by them would be chosen by defaults."""
    from vllm.config import get_current_vllm_config_or_none

    seen = []
    runner = engine._engine.model_executor.driver_worker.worker.model_runner
    load = runner.reload_weights

    def watched(*arguments, **options):
        seen.append(get_current_vllm_config_or_none())
        return load(*arguments, **options)

    monkeypatch.setattr(runner, "reload_weights", watched)
    engine.install(collect(policy.policy, 0, torch.float32))
    assert seen == [engine._engine.vllm_config]


@pytest.mark.parametrize(
    ("asked", "eager", "own_rotation"), [("safe", True, True), ("full", False, False), ("off", True, True)]
)
def test_compilation_is_the_safe_one_unless_asked(model, asked, eager, own_rotation):
    from prorl.cluster.vllm_engine import _arguments

    given = _arguments(engine_settings(config=config_of(model), compilation=asked))
    assert (given.compilation_config.backend == "eager") == eager
    assert ("-rotary_embedding" in given.compilation_config.custom_ops) == own_rotation
    assert given.enforce_eager  # on a CPU, always


def test_positions_are_turned_by_torch(engine):
    model = engine._engine.model_executor.driver_worker.worker.model_runner.model
    turned = {layer.self_attn.rotary_emb._forward_method.__name__ for layer in model.model.layers}
    assert turned == {"forward_native"}


def test_evaluations_may_be_greedy(engine, served):
    prompt = (5, 6, 7)
    greedy = answered(engine, ask(temperature=0.0, limit=8))
    (tokens,) = {tuple(completion.tokens) for completion in greedy.values()}
    with torch.no_grad():
        logits = served.policy(torch.tensor([[*prompt, *tokens]])).logits[0, len(prompt) - 1 : -1]
    assert tuple(logits.argmax(-1).tolist()) == tokens


@pytest.mark.skipif(SECOND_RUNNER, reason="Triton's interpreter cannot run the kernel that cuts the tail")
def test_evaluations_may_cut_the_tail(engine, served):
    with torch.no_grad():
        logits = served.policy(torch.tensor([[5, 6, 7]])).logits[0, -1:]
    probs = torch.softmax(logits[0] / 2.0, -1).sort(descending=True)
    nucleus = set(probs.indices[: int((probs.values.cumsum(-1) < 0.5).sum()) + 1].tolist())
    cut = answered(engine, ask(samples=64, temperature=2.0, top_p=0.5, limit=1))
    drawn = {completion.tokens[0] for completion in cut.values()}
    assert len(drawn) > 1
    assert drawn <= nucleus


@pytest.mark.parametrize("kind", [Qwen2Config, LlamaConfig, Qwen3Config])
@pytest.mark.parametrize("tied", [True, False])
def test_every_architecture_agrees(tmp_path, kind, tied):
    """Qwen2 has biases; what is written is followed to long positions, where the rotation of keys counts."""
    from prorl.cluster.vllm_engine import VLLMEngine

    torch.manual_seed(0)
    config = kind(
        vocab_size=264,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        intermediate_size=64,
        head_dim=32,
        max_position_embeddings=192,
        tie_word_embeddings=tied,
    )
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    policy, engine = (
        noisy_learner(tmp_path, 1),
        VLLMEngine(engine_settings(config=config_of(tmp_path), eos_ids=())),
    )
    engine.install(collect(policy.policy, 0, torch.float32))
    probe(engine, policy)
    assert_log_probs(policy, ask(), answered(engine, ask(samples=1, limit=150)).values())


def turn_wrongly_from_1100_on(worker):
    for module in worker.model_runner.model.modules():
        if hasattr(module, "cos_sin_cache"):
            module.cos_sin_cache[1100:] = module.cos_sin_cache[:-1100].clone()


def test_a_rotation_that_is_wrong_at_long_positions_is_caught_where_it_is_wrong(tmp_path, monkeypatch):
    """The probe of a sync does not look there; the mismatch by position does."""
    monkeypatch.setattr("prorl.cluster.vllm_engine.PROGRESS_SECONDS", 300.0)
    from prorl.cluster.vllm_engine import VLLMEngine

    write_model(tmp_path, "qwen3", width=64)
    config = json.loads(config_of(tmp_path)) | {"max_position_embeddings": 2048}
    (tmp_path / "config.json").write_text(json.dumps(config))
    policy = noisy_learner(tmp_path, 1, old_logprobs="learner")
    engine = VLLMEngine(engine_settings(config=json.dumps(config), eos_ids=(), context=2048))
    engine.install(collect(policy.policy, 0, torch.float32))
    engine.transfer(turn_wrongly_from_1100_on)
    probe(engine, policy)
    request = ask(samples=1, limit=1400)
    (done,) = answered(engine, request).values()
    action = Action(tokens=done.tokens, engine_logps=done.logps, advantage=1.0)
    batch = (PromptActions(prompt=request.prompt, actions=(action,)),)
    stats = updated(policy, batch, dataclasses.replace(HPARAMS, kl_coef=0.0, temperature=1.0))
    assert stats.mismatch_factors["0"] == pytest.approx(1, abs=1e-4)
    assert stats.mismatch_factors["1024"] > DetectorsConfig().mismatch.threshold


def test_what_a_gpu_is_asked_of_vllm_runs_on_a_cpu(tmp_path):
    out, script = tmp_path / "gpu.json", Path(__file__).parents[2] / "benchmarks" / "gpu.py"
    asked = ["--shape", "tiny", "--device", "cpu", "--parts", "engine_safe", "--out", str(out)]
    done = subprocess.run([sys.executable, script, *asked], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    results = json.loads(out.read_text())["parts"]["engine_safe"]["results"]
    assert all(results["gates"].values())
    assert [row["rows"] for row in results["rows"]] == [8, 16]
