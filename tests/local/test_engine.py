"""The engine: what it returns, in which order, and that texts do not depend on the company they decode in."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM, PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

from prorl.local.engine import LocalEngine
from prorl.types import Completion, Request, Sampling

EOS = 3
PROMPTS = ((5, 6, 7), (8, 9, 1, 2, 3, 4, 11), (7,), (12, 30, 31, 2))


def qwen2() -> PreTrainedModel:
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=40,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=96,
    )
    return Qwen2ForCausalLM(config)


def neox() -> PreTrainedModel:
    torch.manual_seed(0)
    config = GPTNeoXConfig(
        vocab_size=40,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=96,
        bos_token_id=0,
        eos_token_id=EOS,
    )
    return GPTNeoXForCausalLM(config)


def engine(model: PreTrainedModel, *, max_rows: int = 512, eos_ids: tuple[int, ...] = (EOS,)) -> LocalEngine:
    return LocalEngine(model, eos_ids=eos_ids, pad_id=0, max_rows=max_rows)


def request(draw: int, *, samples: int = 4, limit: int = 30, **sampling: float) -> Request:
    return Request(
        draw=draw,
        prompt=PROMPTS[draw % len(PROMPTS)],
        samples=samples,
        seed=1000 + draw,
        sampling=Sampling(**{"temperature": 1.0, "top_p": 1.0, **sampling}, limit=limit),
    )


def drain(served: LocalEngine) -> list[Completion]:
    completions = []
    while finished := served.poll():
        completions += finished
    return completions


def texts(completions: list[Completion]) -> dict[tuple[int, int], tuple[int, ...]]:
    return {(completion.draw, completion.sample): tuple(completion.tokens) for completion in completions}


def run(model: PreTrainedModel, *requests: Request, max_rows: int = 512) -> list[Completion]:
    served = engine(model, max_rows=max_rows)
    for asked in requests:
        served.submit(asked)
    return drain(served)


@pytest.mark.parametrize("build", [qwen2, neox])
@pytest.mark.parametrize("top_p", [1.0, 0.7])
def test_a_text_does_not_depend_on_what_decodes_beside_it(
    build: Callable[[], PreTrainedModel], top_p: float
) -> None:
    model = build()
    requests = [request(draw, samples=3 + draw, top_p=top_p) for draw in range(4)]
    alone = {key: text for asked in requests for key, text in texts(run(model, asked)).items()}
    assert texts(run(model, *requests)) == alone
    assert texts(run(model, *reversed(requests))) == alone
    assert texts(run(model, *requests, max_rows=4)) == alone
    assert len(set(alone.values())) > 10


@pytest.mark.parametrize("build", [qwen2, neox])
def test_temperature_zero_writes_what_transformers_writes_without_sampling(
    build: Callable[[], PreTrainedModel],
) -> None:
    model = build().eval()
    found = texts(run(model, *(request(draw, samples=2, temperature=0.0) for draw in range(4))))
    for draw, prompt in enumerate(PROMPTS):
        greedy = model.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            do_sample=False,
            max_new_tokens=30,
            eos_token_id=EOS,
            pad_token_id=0,
        )
        expected = tuple(greedy[0, len(prompt) :].tolist())
        assert found[draw, 0] == found[draw, 1] == expected


def test_responses_end_at_eos_or_at_the_limit() -> None:
    completions = run(qwen2(), request(0, samples=40), request(1, samples=40))
    assert {completion.finish for completion in completions} == {"stop", "length"}
    for completion in completions:
        assert len(completion.logps) == len(completion.tokens)
        assert EOS not in completion.tokens[:-1]
        if completion.finish == "stop":
            assert completion.tokens[-1] == EOS
        else:
            assert len(completion.tokens) == 30
            assert completion.tokens[-1] != EOS


def test_a_limit_of_one_token_and_an_eos_at_the_limit() -> None:
    completions = run(qwen2(), request(0, samples=200, limit=1))
    assert all(len(completion.tokens) == 1 for completion in completions)
    assert all((completion.finish == "stop") == (completion.tokens[-1] == EOS) for completion in completions)
    assert {completion.finish for completion in completions} == {"stop", "length"}


def test_poll_returns_rows_as_they_finish_by_draw_and_sample() -> None:
    served = engine(qwen2())
    for draw in (2, 0, 1):
        served.submit(request(draw, samples=8))
    polls = []
    while finished := served.poll():
        assert finished == sorted(finished, key=lambda completion: (completion.draw, completion.sample))
        lengths = {len(completion.tokens) for completion in finished}
        assert len(lengths) == 1
        polls.append(lengths.pop())
    assert polls == sorted(polls)
    assert len(polls) > 3


def test_every_sample_is_returned_once_also_when_a_request_is_split() -> None:
    completions = run(qwen2(), request(0, samples=11), request(1, samples=2), max_rows=4)
    keys = [(completion.draw, completion.sample) for completion in completions]
    assert sorted(keys) == [(0, sample) for sample in range(11)] + [(1, 0), (1, 1)]


def test_requests_that_sample_differently_do_not_share_a_wave() -> None:
    model = qwen2()
    cold, hot = request(0, temperature=0.0), request(1, temperature=1.5)
    assert texts(run(model, cold, hot)) == texts(run(model, cold)) | texts(run(model, hot))


def test_temperature_zero_is_greedy() -> None:
    model = qwen2().eval()
    served = engine(model, eos_ids=())
    served.submit(request(1, samples=2, temperature=0.0, limit=12))
    first, second = drain(served)
    context = list(PROMPTS[1])
    for token in first.tokens:
        with torch.no_grad():
            assert token == int(model(torch.tensor([context])).logits[0, -1].argmax())
        context.append(token)
    assert first.tokens == second.tokens
    assert first.logps == pytest.approx(served.score(PROMPTS[1], first.tokens), abs=1e-5)


def test_cancel_drops_the_wave_and_the_queue() -> None:
    served = engine(qwen2(), max_rows=4)
    for draw in range(3):
        served.submit(request(draw))
    assert served.poll()
    served.cancel()
    assert served.poll() == []
    served.submit(request(3))
    assert texts(drain(served)) == texts(run(qwen2(), request(3)))


def test_versions_travel_with_completions_and_change_only_between_waves() -> None:
    served = engine(qwen2())
    served.publish(7)
    assert served.version == 7
    served.submit(request(0))
    with pytest.raises(RuntimeError, match="in flight"):
        served.publish(8)
    assert {completion.policy_version for completion in drain(served)} == {7}
    served.publish(8)
    assert served.version == 8


def test_scoring_leaves_a_wave_under_way_alone() -> None:
    model = qwen2()
    served = engine(model)
    served.submit(request(0, samples=6))
    completions = served.poll()
    served.score((5, 6), (7, 8))
    assert texts(completions + drain(served)) == texts(run(model, request(0, samples=6)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prompt": ()}, "empty"),
        ({"prompt": (1,) * 80}, "96 positions"),
        ({"samples": 0}, "at least one sample"),
        ({"sampling": Sampling(temperature=1.0, top_p=1.0, limit=0)}, "limit of at least one"),
        ({"sampling": Sampling(temperature=-1.0, top_p=1.0, limit=9)}, "negative"),
        ({"sampling": Sampling(temperature=1.0, top_p=0.0, limit=9)}, "top_p"),
    ],
)
def test_bad_requests_are_refused(changes: dict[str, object], message: str) -> None:
    fields = {name: getattr(request(0), name) for name in Request.__slots__}
    with pytest.raises(ValueError, match=message):
        engine(qwen2()).submit(Request(**{**fields, **changes}))


@pytest.mark.parametrize("build", [qwen2, neox])
def test_a_diverged_model_is_an_error(build: Callable[[], PreTrainedModel]) -> None:
    model = build()
    with torch.no_grad():
        model.get_output_embeddings().weight.fill_(torch.nan)
    served = engine(model)
    served.submit(request(0))
    with pytest.raises(FloatingPointError, match="not finite"):
        drain(served)
