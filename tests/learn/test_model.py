"""Loading and building models: what comes back, and one clear sentence for whatever is wrong."""

import huggingface_hub.constants
import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    GenerationConfig,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    LlamaConfig,
    LlamaModel,
    MambaConfig,
    MixtralConfig,
    T5Config,
)

from prorl.config.schema import ShapeConfig
from prorl.learn.base_model import build_model, train_tokenizer
from prorl.learn.model import (
    ModelError,
    choose_attention,
    context_limit,
    eos_ids,
    load_model,
    load_tokenizer,
    pad_id,
)
from prorl.learn.parallel import Ranks, model_writer, read_weights
from support.tiny import NARROW

SHAPE = ShapeConfig(
    architecture="llama", hidden_size=16, layers=2, heads=4, kv_heads=2, intermediate_size=24, context=32
)
VOCAB = 300
IDS = torch.tensor([[1, 5, 7, 2]])


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(["a"], VOCAB)


@pytest.fixture
def offline(monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)


def load(folder):
    load_model(folder, dtype=torch.float32, device="cpu")


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_a_built_model_survives_saving_and_loading(architecture, tmp_path):
    built = build_model(SHAPE.model_copy(update={"architecture": architecture}), VOCAB, 3)
    built.save_pretrained(tmp_path)
    loaded = load_model(tmp_path, dtype=torch.float32, device="cpu")
    assert not loaded.training
    assert loaded.config._attn_implementation == "sdpa"
    assert torch.equal(loaded(IDS).logits, built(IDS).logits)
    assert load_model(str(tmp_path), dtype=torch.bfloat16, device="cpu").dtype == torch.bfloat16


def test_a_shape_means_what_it_says():
    hidden, layers, inner, kv = 16, 2, 24, 2 * 4
    attention = 2 * hidden * hidden + 2 * hidden * kv
    per_layer = attention + 3 * hidden * inner + 2 * hidden
    model = build_model(SHAPE, VOCAB, 0)
    assert model.num_parameters() == VOCAB * hidden + layers * per_layer + hidden
    assert context_limit(model) == 32


def test_the_seed_decides_the_weights_and_the_global_state_is_left_alone():
    before = torch.get_rng_state()
    one, again, other = (build_model(SHAPE, VOCAB, seed)(IDS).logits for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


@pytest.mark.parametrize(
    ("sizes", "message"), [({"hidden_size": 20}, "multiple of 8"), ({"kv_heads": 3}, "divisor")]
)
def test_sizes_that_do_not_divide_are_refused(sizes, message):
    with pytest.raises(ModelError, match=message):
        build_model(SHAPE.model_copy(update=sizes), VOCAB, 0)


def test_dropout_is_off_even_in_training_mode(tmp_path):
    config = GPT2Config(
        n_layer=1, n_head=2, n_embd=8, vocab_size=30, n_positions=16, attn_pdrop=0.5, resid_pdrop=0.5
    )
    GPT2LMHeadModel(config).save_pretrained(tmp_path)
    model = load_model(tmp_path, dtype=torch.float32, device="cpu").train()
    assert torch.equal(model(IDS).logits, model(IDS).logits)
    assert context_limit(model) == 16


@pytest.mark.parametrize(("listed", "extra"), [(None, ()), (7, (7,)), ([9, 7], (9, 7))])
def test_every_end_token_is_found_the_tokenizers_own_first(tokenizer, listed, extra):
    model = build_model(SHAPE, VOCAB, 0)
    model.generation_config = GenerationConfig(eos_token_id=listed)
    assert eos_ids(model.generation_config, tokenizer) == (tokenizer.eos_token_id, *extra)
    model.generation_config = GenerationConfig(eos_token_id=[7, tokenizer.eos_token_id])
    assert eos_ids(model.generation_config, tokenizer) == (tokenizer.eos_token_id, 7)


def test_a_missing_directory_is_named(tmp_path):
    with pytest.raises(ModelError, match=r"no directory .*absent"):
        load(tmp_path / "absent")
    with pytest.raises(ModelError, match="no directory"):
        load_tokenizer("./absent")


def test_a_directory_that_is_no_checkpoint_is_refused(tmp_path):
    with pytest.raises(ModelError, match=r"no transformers checkpoint.*config\.json"):
        load(tmp_path)
    with pytest.raises(ModelError, match="no tokenizer that can be read"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (T5Config(d_model=8, num_layers=1), "no causal language-model head"),
        (MambaConfig(hidden_size=8, num_hidden_layers=1), r"\(mamba\) has no attention heads"),
    ],
)
def test_a_model_that_is_no_causal_transformer_is_refused(config, reason, tmp_path):
    config.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=reason):
        load(tmp_path)


@pytest.mark.parametrize("kind", [GPTNeoXConfig, MixtralConfig, GPT2Config])
def test_what_was_written_is_read_back_whatever_names_the_hub_has(kind, tmp_path):
    torch.manual_seed(0)
    model, other = (AutoModelForCausalLM.from_config(kind(**NARROW)) for _ in range(2))
    model_writer(model, Ranks())(tmp_path)
    read_weights(other, tmp_path)
    for found in (other, load_model(tmp_path, dtype=torch.float32, device="cpu")):
        assert all(
            torch.equal(found.state_dict()[name], weight) for name, weight in model.state_dict().items()
        )


def test_padding_has_an_embedding(tokenizer):
    model = build_model(SHAPE, len(tokenizer), 0)
    assert pad_id(tokenizer, model) == (tokenizer.pad_token_id or tokenizer.eos_token_id)
    tokenizer.add_special_tokens({"pad_token": "<beyond>"})
    assert pad_id(tokenizer, model) == tokenizer.eos_token_id < len(tokenizer) - 1 == tokenizer.pad_token_id


def test_weights_that_the_checkpoint_lacks_are_not_made_up(tmp_path):
    LlamaModel(LlamaConfig(**NARROW)).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=r"lacks 1 weights.*lm_head"):
        load(tmp_path)


@pytest.mark.usefixtures("offline")
def test_an_unreachable_hub_says_what_to_download_and_where_to_put_it():
    with pytest.raises(
        ModelError, match=r"offline.*hf download no-such-owner/no-such-model --local-dir.*path"
    ):
        load("no-such-owner/no-such-model")
    with pytest.raises(ModelError, match="hf download"):
        load_tokenizer("no-such-owner/no-such-model")


def test_attention_on_a_gpu_is_not_left_to_kernels_that_are_planned_for_every_shape():
    torch.backends.cuda.enable_cudnn_sdp(True)
    choose_attention()
    assert not torch.backends.cuda.cudnn_sdp_enabled()
    assert torch.backends.cuda.flash_sdp_enabled()
