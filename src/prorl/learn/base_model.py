"""The tiny base model of the demo: its tokenizer, its shape, its training on solutions. Large models need none of it.

`build_base` trains a randomly initialised decoder until it can sometimes do what it is asked. The result is an
ordinary transformers checkpoint (model, tokenizer, generation config) with `warmup.json` beside it. Invariants: a
folder in the cache is complete, for it is built aside and renamed into place; its name is a hash of everything that
determines it.

The tokenizer is byte-level: whole frequent words, everything else one byte per token. A BPE learned at this scale
cuts the random strings of a puzzle at whatever pairs the prose around them made frequent ("reab" → "re" "a" "b"), so
the same letter hides in many tokens and a small model cannot learn to reverse or sort. Here a word is either common
enough to be one token (`ignore_merges`, no merge table) or spelled out; the same texts give the same files.
"""

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from importlib.metadata import version
from itertools import accumulate, count, islice, starmap
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any, NamedTuple

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import clip_grad_norm_
from torch.nn.utils.rnn import pad_sequence
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    GenerationConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from prorl.config.schema import ShapeConfig, WarmupConfig
from prorl.envs.extract import respond
from prorl.envs.files import making
from prorl.envs.seeds import derive
from prorl.envs.types import Problem
from prorl.learn.linear import linear
from prorl.learn.llama import packed_hidden_states
from prorl.learn.model import ModelError
from prorl.learn.parallel import Held, Runner
from prorl.rollout.pipeline import TAGS, ChatRenderer

VERSION = 3  # to be raised with every change of this file that changes the trained weights
RECORD = "warmup.json"
MICRO_BATCH = 16  # sequences of similar length computed together: little padding
RAMP = 0.1  # share of the steps over which the learning rate rises
GRAD_CLIP = 1.0
RECENT = 20  # steps whose mean loss may end the warm-up
BETAS = (0.9, 0.95)
WEIGHT_DECAY = 0.01
MOMENTUM = 0.95
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)  # coefficients of Muon's authors
MAX_UNUSABLE = 10_000  # problems in a row without a solution that fits

PAD, USER, ASSISTANT, END = "<|endoftext|>", "<|im_start|>", "<|im_sep|>", "<|im_end|>"
SPECIAL = (PAD, USER, ASSISTANT, END)
SMALLEST = 256 + len(SPECIAL) + len(TAGS)  # every byte, and the tokens that are always there

# Qwen's split: a word keeps its leading space, digits stand alone, punctuation runs stay together.
_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_ADDED = re.compile("|".join(map(re.escape, SPECIAL + TAGS)))
_MIN_SHARE = 1 / 500  # of the texts: rarer words are content, not phrasing, and are spelled out

# Two tokens of overhead per prompt: who speaks is the opening token itself.
_CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    f"{{%- if message['role'] == 'assistant' -%}}{{{{- '{ASSISTANT}' + message['content'] + '{END}' -}}}}"
    f"{{%- else -%}}{{{{- '{USER}' + message['content'] -}}}}{{%- endif -%}}"
    "{%- endfor -%}"
    f"{{%- if add_generation_prompt -%}}{{{{- '{ASSISTANT}' -}}}}{{%- endif -%}}"
)

Progress = Callable[[int, int, float], None]


def build_model(shape: ShapeConfig, vocab_size: int, seed: int) -> PreTrainedModel:
    """A randomly initialised float32 model on the CPU, in evaluation mode; one matrix embeds and predicts.

    The same arguments give the same weights, and the global random state stays as it was. Raises ModelError for
    sizes that do not divide.
    """
    if shape.hidden_size % (2 * shape.heads):
        raise ModelError(
            f"hidden_size {shape.hidden_size} gives {shape.heads} heads no equal, even size: use a multiple of "
            f"{2 * shape.heads}"
        )
    if shape.heads % shape.kv_heads:
        raise ModelError(f"{shape.heads} heads cannot share {shape.kv_heads} kv_heads equally: use a divisor")
    config = AutoConfig.for_model(
        shape.architecture,
        vocab_size=vocab_size,
        hidden_size=shape.hidden_size,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.hidden_size // shape.heads,
        intermediate_size=shape.intermediate_size,
        max_position_embeddings=shape.context,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    return model.eval()


class Example(NamedTuple):
    """One prompt and its shown response, end-of-sequence token included, and the position of every token."""

    prompt: tuple[int, ...]
    response: tuple[int, ...]
    positions: tuple[int, ...]


def build_base(
    warmup: WarmupConfig,
    problem_at: Callable[[int], Problem],
    cache: Path,
    *,
    seed: int,
    fingerprint: str,
    computing: Callable[[nn.Module], AbstractContextManager[Runner]],
    progress: Progress,
) -> Path:
    """The folder of the base that these settings make on `problem_at(0), problem_at(1), …`, trained if not cached.

    `seed` is of the initial weights. `fingerprint` names the problems: equal ones promise equal `problem_at`.
    `computing` gives what computes the passes of a model, in any number of processes.
    `progress(step, steps, loss)` is called after every step, with the mean cross-entropy per response token in nats.
    The weights are reproducible for one number of threads. Prompts carry no instruction.

    Raises ModelError if no problem has a solution that fits, and for qwen2.
    """
    if warmup.shape.architecture == "qwen2":
        raise ModelError(
            "warm-up: transformers reads every qwen2 checkpoint with Qwen's own tokenizer class, which would "
            "cut text differently from this one; choose llama or qwen3"
        )
    identity = _identity(warmup, seed, fingerprint)
    digest = hashlib.blake2b(json.dumps(identity, sort_keys=True).encode(), digest_size=8)
    folder = cache / f"base-{digest.hexdigest()}"
    if folder.is_dir():
        return folder
    try:
        with making(folder) as aside:
            corpus = (
                text
                for problem in map(problem_at, range(warmup.corpus_problems))
                for text in (problem.prompt, _shown(problem))
                if text is not None
            )
            tokenizer = train_tokenizer(corpus, warmup.vocab_size)
            model = build_model(warmup.shape, len(tokenizer), seed)
            examples = _examples(problem_at, tokenizer, warmup, seed)
            with computing(model) as runner:
                losses = train(model, examples, warmup, runner, progress)
            end = model.config.eos_token_id = tokenizer.eos_token_id
            padding = tokenizer.pad_token_id
            model.generation_config = GenerationConfig(eos_token_id=end, pad_token_id=padding, do_sample=True)
            model.save_pretrained(aside)
            tokenizer.save_pretrained(aside)
            record = identity | {
                "parameters": model.num_parameters(),
                "vocabulary": len(tokenizer),
                "threads": torch.get_num_threads(),
                "losses": [round(loss, 4) for loss in losses],
            }
            (aside / RECORD).write_text(json.dumps(record, indent=1) + "\n")
    except OSError:
        if not folder.is_dir():  # else another process built the same base meanwhile
            raise
    return folder


def _identity(warmup: WarmupConfig, seed: int, fingerprint: str) -> dict[str, Any]:
    """Whatever changes the base."""
    chosen = warmup.model_dump(exclude={"levels", "lr"}) | {"learning_rate": warmup.lr, "seed": seed}
    chosen["shape"]["tied_embeddings"] = True
    packages = {name: version(name) for name in ("torch", "transformers", "tokenizers")}
    return {"settings": chosen, "fingerprint": fingerprint, "packages": packages, "version": VERSION}


def _shown(problem: Problem) -> str | None:
    """What is shown in reply to a problem; None where it has no solution."""
    shown = problem.solution
    return None if shown is None else respond(shown.steps, shown.answer)


def _examples(
    problem_at: Callable[[int], Problem], tokenizer: PreTrainedTokenizerFast, warmup: WarmupConfig, seed: int
) -> Iterator[Example]:
    """Examples in the order of the problems, without those that have no solution or do not fit the context."""
    renderer = ChatRenderer(tokenizer)
    unusable = 0
    for draw, problem in enumerate(map(problem_at, count())):
        unusable += 1
        if (text := _shown(problem)) is not None:
            response = (*tokenizer.encode(text, add_special_tokens=False), tokenizer.eos_token_id)
            prompt = renderer.encode(problem.prompt, problem.history)
            if (spare := warmup.shape.context - len(prompt) - len(response)) >= 0:
                unusable = 0
                rng = Random(derive(seed, "position jumps", draw))
                jumps = jumped(len(prompt), warmup.position_jumps, spare, rng)
                after = range(jumps[-1] + 1, jumps[-1] + 1 + len(response))
                yield Example(prompt, response, (*jumps, *after))
        if unusable == MAX_UNUSABLE:
            raise ModelError(
                f"warm-up: {unusable} problems in a row have no solution that fits into the context of "
                f"{warmup.shape.context} tokens; use tasks with solutions or raise shape.context"
            )


def jumped(length: int, most: int, spare: int, rng: Random) -> tuple[int, ...]:
    """Positions of so many tokens, with at most `most` jumps at random places that skip at most `spare` together.

    Short texts then teach long distances: positional skip-wise training (Zhu et al., arXiv:2309.10400), with jumps
    of the prompt alone, so that a response stays next to itself.
    """
    steps = [0] + [1] * (length - 1)
    for _ in range(rng.randint(0, most)):
        steps[rng.randrange(length)] += rng.randint(0, spare // most)
    return tuple(accumulate(steps))


def train(
    model: PreTrainedModel,
    examples: Iterator[Example],
    warmup: WarmupConfig,
    runner: Runner,
    progress: Progress,
) -> list[float]:
    """Train in place on the next `steps * batch_size` examples, fewer if `until_loss` is reached.

    Returns the loss of every step, in nats per token.
    """
    optimizers = list(_optimizers(model, warmup, runner.count))
    losses = []
    parts = _parts(examples, warmup.batch_size)
    for step in range(warmup.steps):
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = warmup.lr * rate_factor(step, warmup.steps)
        model.zero_grad()
        computing = runner.run(gradient, parts, gradients=True)
        if step + 1 < warmup.steps:  # while workers compute
            parts = _parts(examples, warmup.batch_size)
        loss = sum(computing, 0.0)
        clip_grad_norm_(model.parameters(), GRAD_CLIP)
        for optimizer in optimizers:
            optimizer.step()
        losses.append(loss)
        progress(step + 1, warmup.steps, loss)
        if len(losses) >= RECENT and fmean(losses[-RECENT:]) <= warmup.until_loss:
            break
    return losses


class Muon:
    """Momentum orthogonalised (Jordan et al. 2024), for matrices, at AdamW's rates (Liu et al., arXiv:2502.16982).

    As `torch.optim.Muon`, but in float32: bfloat16 takes half a second a step on a processor without it.
    """

    def __init__(self, weights: list[nn.Parameter], lr: float, threads: int = 1) -> None:
        """`threads` share the matrices."""
        self.param_groups = [{"lr": lr}]
        self._momenta = [(weight, torch.zeros_like(weight)) for weight in weights]
        self._threads = threads

    @torch.no_grad()
    def step(self) -> None:
        """Apply the gradients."""
        rate = self.param_groups[0]["lr"]
        # by itself each of them would compute with all cores
        as_here = partial(torch.set_num_threads, torch.get_num_threads())
        with ThreadPoolExecutor(self._threads, initializer=as_here) as pool:
            updates = pool.map(orthogonalised, starmap(_direction, self._momenta))
        for (weight, _), update in zip(self._momenta, updates, strict=True):
            weight.mul_(1 - rate * WEIGHT_DECAY)
            weight.sub_(update, alpha=rate * 0.2 * max(weight.shape) ** 0.5)


def _direction(weight: nn.Parameter, momentum: Tensor) -> Tensor:
    """The gradient after momentum, which takes it in."""
    assert weight.grad is not None, "every matrix of a layer is used"
    momentum.lerp_(weight.grad, 1 - MOMENTUM)
    return weight.grad.lerp(momentum, MOMENTUM)


@torch.no_grad()
def orthogonalised(matrix: Tensor) -> Tensor:
    """The matrix with all its singular values near one, by five Newton-Schulz iterations."""
    first, second, third = NEWTON_SCHULZ
    x: Tensor = matrix.mT if matrix.shape[0] > matrix.shape[1] else matrix
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(5):
        gram = x @ x.mT
        x = first * x + (second * gram + third * gram @ gram) @ x
    return x.mT if matrix.shape[0] > matrix.shape[1] else x


def _optimizers(
    model: PreTrainedModel, warmup: WarmupConfig, threads: int
) -> Iterator[torch.optim.AdamW | Muon]:
    """AdamW, and Muon for the matrices of the layers where it is chosen."""
    matrices = [weight for weight in model.base_model.layers.parameters() if weight.dim() == 2]
    chosen = matrices if warmup.optimizer == "muon" else []
    if chosen:
        yield Muon(chosen, lr=warmup.lr, threads=threads)  # as many as workers, which are idle meanwhile
    others = [weight for weight in model.parameters() if all(weight is not one for one in chosen)]
    yield torch.optim.AdamW(others, betas=BETAS, weight_decay=WEIGHT_DECAY, fused=True)


def _parts(examples: Iterator[Example], count: int) -> list[tuple[list[Example], int]]:
    """The next so many examples, those of similar length together, each part with the response tokens of all."""
    batch = sorted(islice(examples, count), key=lambda e: len(e.prompt) + len(e.response))
    tokens = sum(len(example.response) for example in batch)
    return [(batch[start : start + MICRO_BATCH], tokens) for start in range(0, len(batch), MICRO_BATCH)]


def gradient(held: Held, given: tuple[list[Example], int]) -> Iterator[float]:
    """The loss of some examples of a batch of so many response tokens; its gradient is added to the parameters'."""
    examples, tokens = given
    part = response_loss(held.modules[0], examples) / tokens
    torch.autograd.backward(part)
    yield part.item()


def rate_factor(step: int, steps: int) -> float:
    """Share of the peak learning rate at a step (from 0): a linear rise, then a cosine down to a tenth."""
    ramp = max(1, round(RAMP * steps))
    if step < ramp:
        return (step + 1) / ramp
    return 0.1 + 0.45 * (1 + math.cos(math.pi * (step - ramp) / max(1, steps - ramp)))


def response_loss(model: PreTrainedModel, batch: list[Example]) -> Tensor:
    """Sum over all response tokens of -log p, in nats; logits exist only where a response token is predicted.

    Nothing is masked: padding stands on the right, where causal attention never looks from a real token.
    """
    ids_BT = pad_sequence([torch.tensor(e.prompt + e.response) for e in batch], batch_first=True)
    positions_BT = pad_sequence([torch.tensor(e.positions) for e in batch], batch_first=True)
    predicting: list[int] = []
    for row, example in enumerate(batch):
        # The last prompt token predicts the response's first.
        first = row * ids_BT.shape[1] + len(example.prompt) - 1
        predicting.extend(range(first, first + len(example.response)))
    targets_N = torch.tensor([token for example in batch for token in example.response])
    hidden_BTH = packed_hidden_states(model, ids_BT, positions_BT)
    hidden_NH = hidden_BTH.flatten(0, 1).index_select(0, torch.tensor(predicting))
    logits_NV = linear(hidden_NH, model.get_output_embeddings().weight)
    return F.cross_entropy(logits_NV, targets_N, reduction="sum")


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """A tokenizer of at most `vocab_size` tokens whose words come from `texts`; fewer where words run out.

    A word earns its place by the tokens it saves: occurrences times (bytes - 1); ties break by the word itself.
    Raises ModelError where `vocab_size` leaves no room for the bytes and the added tokens.
    """
    if vocab_size < SMALLEST:
        raise ModelError(f"vocab_size is {vocab_size}; bytes and added tokens alone need {SMALLEST}")
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = _frequent_words(texts)[: vocab_size - SMALLEST]
    vocab = {token: id_ for id_, token in enumerate([*alphabet, *words])}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[], ignore_merges=True))
    tokenizer.pre_tokenizer = _pre_tokenizer()
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in TAGS])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END,
        pad_token=PAD,
        extra_special_tokens=[USER, ASSISTANT],
        clean_up_tokenization_spaces=False,
        chat_template=_CHAT_TEMPLATE,
    )


def _pre_tokenizer() -> pre_tokenizers.PreTokenizer:
    split = pre_tokenizers.Split(Regex(_SPLIT), behavior="isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def _frequent_words(texts: Iterable[str]) -> list[str]:
    """Byte-level words of two bytes or more, most tokens saved first, without those that few texts contain."""
    cut = _pre_tokenizer()
    occurrences: Counter[str] = Counter()
    texts_with: Counter[str] = Counter()
    total = 0
    for text in texts:
        parts = (cut.pre_tokenize_str(part) for part in _ADDED.split(text))
        words = [word for part in parts for word, _ in part if len(word) > 1]
        occurrences.update(words)
        texts_with.update(set(words))
        total += 1
    common = [word for word, count in texts_with.items() if count >= max(2, total * _MIN_SHARE)]
    return sorted(common, key=lambda word: (-occurrences[word] * (len(word) - 1), word))
