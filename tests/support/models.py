"""Small random models, far from uniform, of every kind that own layers compute, and of one that they do not."""

import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from support.tiny import FOUR_HEADS

VOCABULARY = FOUR_HEADS["vocab_size"]
YARN = {"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "original_max_position_embeddings": 32}


def randomised(model):
    """All weights drawn anew, in evaluation mode: norms and biases too are neither ones nor zeros."""
    generator = torch.Generator().manual_seed(1)
    for name, weight in model.named_parameters():
        weight.data.normal_(1.0 if "norm" in name or "ln_" in name else 0.0, 0.2, generator=generator)
    return model.eval()


def qwen2(**options):
    return randomised(Qwen2ForCausalLM(Qwen2Config(**FOUR_HEADS, num_key_value_heads=2, **options)))


def qwen3(**options):
    return randomised(Qwen3ForCausalLM(Qwen3Config(**FOUR_HEADS, num_key_value_heads=2, **options)))


def llama(key_heads, **options):
    return randomised(LlamaForCausalLM(LlamaConfig(**FOUR_HEADS, num_key_value_heads=key_heads, **options)))


def gpt2():
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
    config = GPT2Config(vocab_size=VOCABULARY, bos_token_id=0, eos_token_id=0, **sizes)
    return randomised(GPT2LMHeadModel(config))


NATIVE = {
    "qwen2-tied": lambda: qwen2(tie_word_embeddings=True),
    "qwen2-untied-yarn": lambda: qwen2(tie_word_embeddings=False, rope_parameters=YARN),
    "qwen3": lambda: qwen3(head_dim=16, attention_bias=True),
    "llama-one-key-head-biased": lambda: llama(1, attention_bias=True, mlp_bias=True),
    "llama-no-groups": lambda: llama(4),
}
MODELS = NATIVE | {"gpt2": gpt2}
