"""What the engine returns and in which order; a text depends on (seed, sample, position), not on its company."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM, Qwen2Config, Qwen2ForCausalLM

from prorl.envs.errors import UsageError
from prorl.local import decoder
from prorl.local.engine import LocalEngine, absorb, row_keys, token_logps, uniform
from prorl.local.engine import draw as draw_tokens
from prorl.types import Request, Sampling
from support.tiny import FOUR_HEADS

EOS = 3
PROMPTS = ((5, 6, 7), (8, 9, 1, 2, 3, 4, 11), (7,), (12, 30, 31, 2))
SIZES = FOUR_HEADS | {"max_position_embeddings": 96}


def qwen2():
    torch.manual_seed(0)
    return Qwen2ForCausalLM(Qwen2Config(**SIZES, num_key_value_heads=2))


def neox():
    torch.manual_seed(0)
    return GPTNeoXForCausalLM(GPTNeoXConfig(**SIZES, bos_token_id=0, eos_token_id=EOS))


def engine(model, *, max_rows=512, eos_ids=(EOS,)):
    return LocalEngine(model, eos_ids=eos_ids, pad_id=0, max_rows=max_rows)


def request(draw, *, samples=4, limit=30, **sampling):
    return Request(
        draw=draw,
        prompt=PROMPTS[draw % len(PROMPTS)],
        samples=samples,
        seed=1000 + draw,
        sampling=Sampling(**{"temperature": 1.0, "top_p": 1.0, **sampling}, limit=limit),
    )


def drain(served):
    completions = []
    while finished := served.poll():
        completions += finished
    return completions


def texts(completions):
    found = {(completion.draw, completion.sample): tuple(completion.tokens) for completion in completions}
    assert len(found) == len(completions)  # none twice
    return found


def run(model, *requests, max_rows=512):
    served = engine(model, max_rows=max_rows)
    for asked in requests:
        served.submit(asked)
    return drain(served)


@pytest.mark.parametrize("build", [qwen2, neox])
@pytest.mark.parametrize("top_p", [1.0, 0.7])
def test_a_text_does_not_depend_on_what_decodes_beside_it(build, top_p):
    model = build()
    requests = [request(draw, samples=3 + draw, top_p=top_p) for draw in range(4)]
    alone = {key: text for asked in requests for key, text in texts(run(model, asked)).items()}
    assert texts(run(model, *requests)) == alone
    assert texts(run(model, *reversed(requests))) == alone
    assert texts(run(model, *requests, max_rows=4)) == alone  # the largest request is split
    assert len(set(alone.values())) > 10


@pytest.mark.parametrize("build", [qwen2, neox])
@pytest.mark.parametrize("max_rows", [5, 512])
def test_a_text_that_was_cut_goes_on_as_it_would_have(build, max_rows):
    model = build()
    whole = {(one.draw, one.sample): one for one in run(model, *(request(draw) for draw in range(3)))}
    served, found, asked = engine(model, max_rows=max_rows), {}, [request(draw) for draw in range(3)]
    parts = dict.fromkeys(whole, ((), ()))
    cuts = 0
    while len(found) < len(whole):
        for one in asked:
            served.submit(one)
        ended, cut = served.poll(), served.cancel()
        assert not served.poll()
        cuts += len(cut)
        assert all(one.finish == "length" for one in cut)
        for one in (*ended, *cut):
            tokens, logps = parts[one.draw, one.sample]
            parts[one.draw, one.sample] = (*tokens, *one.tokens), (*logps, *one.logps)
        found |= {(one.draw, one.sample): one for one in ended}
        asked = [
            replace(request(draw, samples=1, limit=30 - len(begun)), first=sample, begun=begun)
            for (draw, sample), (begun, _) in parts.items()
            if (draw, sample) not in found
        ]
    assert cuts
    assert {key: tokens for key, (tokens, _) in parts.items()} == texts(whole.values())
    for key, (_, logps) in parts.items():
        assert logps == pytest.approx(whole[key].logps, abs=1e-5)
        assert found[key].finish == whole[key].finish


@pytest.mark.parametrize("build", [qwen2, neox])
def test_temperature_zero_writes_what_transformers_writes_without_sampling(build):
    model = build().eval()
    completions = run(model, *(request(draw, samples=2, temperature=0.0) for draw in range(4)))
    found = texts(completions)
    for completion in completions:
        scored = engine(model).score(PROMPTS[completion.draw], completion.tokens)
        assert completion.logps == pytest.approx(scored, abs=1e-5)
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


@pytest.mark.parametrize("limit", [30, 1])
def test_responses_end_at_eos_or_at_the_limit(limit):
    completions = run(qwen2(), *(request(draw, samples=100, limit=limit) for draw in range(2)))
    assert {completion.finish for completion in completions} == {"stop", "length"}
    for completion in completions:
        assert len(completion.logps) == len(completion.tokens)
        assert EOS not in completion.tokens[:-1]
        assert (completion.finish == "stop") == (completion.tokens[-1] == EOS)
        assert completion.finish == "stop" or len(completion.tokens) == limit


def test_poll_returns_rows_as_they_finish_by_draw_and_sample():
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


def test_requests_that_sample_differently_do_not_share_a_wave():
    model = qwen2()
    cold, hot = request(0, temperature=0.0), request(1, temperature=1.5)
    assert texts(run(model, cold, hot)) == texts(run(model, cold)) | texts(run(model, hot))


def test_versions_travel_with_completions_and_change_only_between_waves():
    served = engine(qwen2())
    served.publish(7)
    assert served.version == 7
    served.submit(request(0))
    with pytest.raises(RuntimeError, match="in flight"):
        served.publish(8)
    assert {completion.policy_version for completion in drain(served)} == {7}
    served.publish(8)
    assert served.version == 8


def test_scoring_leaves_a_wave_under_way_alone():
    model = qwen2()
    served = engine(model)
    served.submit(request(0, samples=6))
    completions = served.poll()
    served.score((5, 6), (7, 8))
    assert texts(completions + drain(served)) == texts(run(model, request(0, samples=6)))


@pytest.mark.parametrize(("prompt", "message"), [((), "empty"), ((1,) * 80, "96 positions")])
def test_bad_requests_are_refused(prompt, message):
    with pytest.raises(UsageError, match=message):
        engine(qwen2()).submit(replace(request(0), prompt=prompt))


@pytest.mark.parametrize("build", [qwen2, neox])
def test_a_diverged_model_is_an_error(build):
    model = build()
    with torch.no_grad():
        model.get_output_embeddings().weight.fill_(torch.nan)
    served = engine(model)
    served.submit(request(0))
    with pytest.raises(FloatingPointError, match="not finite"):
        drain(served)


CPU = torch.device("cpu")
DRAWS = 20_000


def splitmix64(state):
    """The published reference, in Python integers."""
    mask = (1 << 64) - 1
    state = (state + 0x9E3779B97F4A7C15) & mask
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & mask
    return state ^ (state >> 31)


def sample(logits, *, temperature=1.0, top_p=1.0, seed=0):
    keys = row_keys([seed] * DRAWS, range(DRAWS), CPU)
    sampling = Sampling(temperature=temperature, top_p=top_p, limit=1)
    return draw_tokens(logits.expand(DRAWS, -1), absorb(keys, 0), sampling)[0]


def chi_square(tokens, probs):
    expected = probs.double() * len(tokens)
    counts = torch.bincount(tokens, minlength=len(probs))
    return float(((counts - expected) ** 2 / expected)[probs > 0].sum())


@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**20))
def test_absorb_is_splitmix64_at_a_counter(key, counter):
    expected = splitmix64(key + counter * 0x9E3779B97F4A7C15)
    keys = torch.tensor([key])
    assert absorb(keys, counter).item() % 2**64 == expected
    assert absorb(keys, torch.tensor([counter])).item() % 2**64 == expected


def test_uniform_covers_the_half_open_unit_interval():
    extremes = uniform(torch.tensor([0, -1]))
    assert extremes[0] == 0.0
    assert 1.0 - 2.0**-52 < extremes[1] < 1.0


def test_keys_differ_between_seeds_and_samples_and_accept_any_64_bits():
    keys = row_keys([0, 0, 1, 1, 2**63, 2**64 - 1], [0, 1, 0, 1, 0, 0], CPU)
    assert len(set(keys.tolist())) == 6


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_tokens_follow_the_tempered_softmax(temperature):
    logits = torch.tensor([1.0, -0.5, 0.3, 2.0, -2.0, 0.0])
    tokens = sample(logits, temperature=temperature)
    # 5 degrees of freedom: 25 is exceeded by chance once in seven thousand
    assert chi_square(tokens, torch.softmax(logits / temperature, -1)) < 25.0


def test_neighbouring_samples_are_independent():
    tokens = sample(torch.zeros(4))
    pairs = tokens[:-1] * 4 + tokens[1:]
    assert chi_square(pairs, torch.full((16,), 1 / 16)) < 45.0


def test_top_p_draws_from_the_renormalised_nucleus_only():
    probs = torch.tensor([0.05, 0.4, 0.1, 0.3, 0.15])
    tokens = sample(probs.log(), top_p=0.8)
    nucleus = torch.tensor([0.0, 0.4, 0.0, 0.3, 0.15]) / 0.85
    assert set(tokens.tolist()) == {1, 3, 4}
    assert chi_square(tokens, nucleus) < 20.0


def test_a_small_top_p_leaves_the_most_probable_tokens_ties_included():
    assert set(sample(torch.tensor([0.0, 3.0, 1.0]), top_p=0.01).tolist()) == {1}
    assert set(sample(torch.tensor([2.0, 0.0, 2.0]), top_p=0.1).tolist()) == {0, 2}


def test_log_probs_are_of_the_untruncated_tempered_distribution():
    logits = torch.randn(50, 9, generator=torch.Generator().manual_seed(0))
    keys = row_keys(range(50), [0] * 50, CPU)
    tokens, logps = draw_tokens(logits, absorb(keys, 5), Sampling(temperature=0.7, top_p=0.5, limit=1))
    torch.testing.assert_close(logps, token_logps(logits / 0.7, tokens), atol=1e-6, rtol=1e-6)


def test_temperature_zero_takes_the_most_probable_token():
    logits = torch.tensor([[0.0, 2.0, 1.0], [5.0, 2.0, 1.0], [1.0, 3.0, 3.0]])  # the first of equals
    tokens, logps = draw_tokens(
        logits, row_keys([0, 0, 0], [0, 1, 2], CPU), Sampling(temperature=0.0, top_p=0.5, limit=1)
    )
    assert tokens.tolist() == [1, 0, 1]
    torch.testing.assert_close(logps, torch.log_softmax(logits, -1).amax(-1))


def test_an_impossible_token_is_never_drawn():
    logits = torch.tensor([-torch.inf, 0.0, -torch.inf, 0.0, -torch.inf])
    assert set(sample(logits).tolist()) == {1, 3}


@pytest.mark.parametrize(
    ("heads", "key_heads", "depth"),
    [(4, 2, 8), (4, 4, 16), (8, 1, 8)],
    ids=["groups", "no groups", "one key head"],
)
def test_no_bit_depends_on_what_is_decoded_beside_a_response(heads, key_heads, depth):
    torch.manual_seed(0)
    sizes = SIZES | {
        "hidden_size": heads * depth,
        "num_attention_heads": heads,
        "max_position_embeddings": 512,
    }
    model = Qwen2ForCausalLM(Qwen2Config(**sizes, num_key_value_heads=key_heads))
    lengths = (3, 31, 32, 33, 64, 90, 127, 128, 130, 200, 270)
    asked = [
        replace(
            request(draw, samples=samples), prompt=tuple(token % 37 for token in range(draw, draw + length))
        )
        for draw, (length, samples) in enumerate(zip(lengths, (1, 2, 3, 8, 1, 3, 2, 1, 5, 1, 2), strict=True))
    ]

    def bits(*requests, **rows):
        return {(one.draw, one.sample): one.logps.tobytes() for one in run(model, *requests, **rows)}

    together = bits(*asked)
    assert bits(*reversed(asked)) == together
    assert bits(*asked, max_rows=8) == together
    for one in asked:
        assert bits(one).items() <= together.items()
    assert engine(model).is_steady()


def test_an_engine_whose_bits_depend_on_the_company_is_told_apart(monkeypatch):
    def otherwise_with_few_rows(weight, bias):
        return lambda x: F.linear(x, weight) if len(x) > 8 else F.linear(x.double(), weight.double()).float()

    monkeypatch.setattr(decoder, "prepared", otherwise_with_few_rows)
    assert not engine(qwen2()).is_steady()
