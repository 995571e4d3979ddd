"""Rendering, sampling and judging: the result follows from the problems; an outage delays verdicts and no more."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from prorl.envs.errors import UsageError
from prorl.envs.extract import extract_answer, respond
from prorl.envs.seeds import derive
from prorl.envs.types import Problem, Verdict
from prorl.learn.base_model import END, USER, train_tokenizer
from prorl.rollout.pipeline import (
    LONGEST_WAIT,
    ChatRenderer,
    WaitEnded,
    failures,
    judge_all,
    rejudge_errors,
    roll_out,
)
from prorl.stopwatch import Stopwatch
from prorl.types import Group, JudgeOutError, Sampling
from support.rollouts import problem, response, scripted_sampler

SAMPLING = Sampling(temperature=1.0, top_p=1.0, limit=100)


def answer(draw, sample):
    return str((10 * draw + sample) / 100)


def rolled(sampler, draws, *, samples=3, seed=7):
    groups = [Group(draw=draw, problem=problem(draw)) for draw in draws]
    seeds = [derive(seed, draw) for draw in draws]
    return roll_out(sampler, groups, samples=samples, sampling=SAMPLING, seeds=seeds, clock=Stopwatch())


@given(st.permutations(range(5)), st.integers(0, 1000), st.booleans())
def test_neither_the_order_of_completion_nor_late_verdicts_change_the_groups(draws, shuffle, late):
    sampler = scripted_sampler(answer, shuffle=shuffle, late=late)
    groups = rolled(sampler, draws)
    assert sampler.engine.poll() == sampler.judge.poll(wait=True) == []  # nothing is in flight
    assert [group.draw for group in groups] == list(draws)
    assert groups == rolled(scripted_sampler(answer), draws)
    for group in groups:
        assert [rollout.completion.sample for rollout in group.rollouts] == [0, 1, 2]
        assert group.scores == tuple(float(answer(group.draw, sample)) for sample in range(3))
        assert [r.text for r in group.rollouts] == [
            response(answer(group.draw, sample)) for sample in range(3)
        ]


def test_a_problem_is_asked_alike_whoever_is_asked_with_it():
    alone, among = scripted_sampler(answer), scripted_sampler(answer)
    rolled(alone, [4])
    rolled(among, [2, 4, 9])
    assert alone.engine.requests == [request for request in among.engine.requests if request.draw == 4]


def test_requests_carry_what_was_asked_for():
    sampler = scripted_sampler(answer)
    rolled(sampler, [4, 5], samples=2, seed=11)
    request = sampler.engine.requests[0]
    assert (request.draw, request.samples, request.sampling) == (4, 2, SAMPLING)
    assert request.prompt == sampler.renderer.encode("problem 4")
    assert [request.seed for request in sampler.engine.requests] == [derive(11, 4), derive(11, 5)]


def test_a_prompt_that_the_chat_template_refuses_costs_its_own_group_alone():
    sampler = scripted_sampler(answer)
    encode = sampler.renderer.encode

    def refusing(prompt, history=()):
        if prompt == "problem 4":
            raise UsageError("the chat template refuses it: no system role")
        return encode(prompt, history)

    sampler.renderer.encode = refusing
    refused, other = rolled(sampler, [4, 5])
    assert {one.verdict.status for one in refused.rollouts} == {"error"}
    assert refused.rollouts[0].verdict.note == "the chat template refuses it: no system role"
    assert not refused.unfinished, "else it would be asked for ever"
    assert other == rolled(scripted_sampler(answer), [5])[0]


def test_a_template_that_tells_the_date_tells_the_same_one_for_ever():
    tokens = train_tokenizer(["26 Jul 2024"], 300)
    tokens.chat_template = "{%- if strftime_now is defined %}\n{{ strftime_now('%d %b %Y') }}{% endif %}"
    assert tokens.decode(ChatRenderer(tokens).encode("hello")) == "26 Jul 2024"


def test_a_template_that_raises_is_told():
    tokens = train_tokenizer(["a b"], 300)
    refuses = "raise_exception('System role not supported')"
    tokens.chat_template = f"{{{{ {refuses} if messages[0]['role'] == 'system' else 'x' }}}}"
    with pytest.raises(UsageError, match="the chat template refuses it: System role not supported"):
        ChatRenderer(tokens).encode("hello", (("system", "Be brief."),))


def test_no_problems_make_no_groups():
    assert rolled(scripted_sampler(answer), []) == []


OK = Verdict(score=1.0, status="ok")
ERROR = Verdict(score=0.0, status="error", note="no connection")


class FlakyJudge:
    """Fails on everything of the task "code" until it has been asked `failing` times about each item."""

    def __init__(self, failing):
        self.asked: Counter[str] = Counter()
        self._failing = failing
        self._ready: list[tuple[int, Verdict]] = []

    def submit(self, ticket, problem, text):
        self.asked[text] += 1
        broken = problem.task == "code" and self.asked[text] <= self._failing
        self._ready.append((ticket, ERROR if broken else OK))

    def poll(self, *, wait):
        return [self._ready.pop()] if self._ready else []


def items(**tasks):
    return [
        (
            Problem(task=task, domain="d", index=i, split="train", level=0, prompt="p", payload=None),
            f"{task}{i}",
        )
        for task, count in tasks.items()
        for i in range(count)
    ]


class AbsentJudge(FlakyJudge):
    """Cannot be started for the first three polls."""

    absent = 3

    def poll(self, *, wait):
        if self.absent:
            self.absent -= 1
            raise JudgeOutError("no judge can be started (no memory)", 4.0)
        return super().poll(wait=wait)


def judged(judge, asked):
    return judge_all(judge, dict(enumerate(asked)))


def test_a_task_that_is_out_is_judged_again_until_it_heals():
    judge, asked, waits = FlakyJudge(failing=4), items(code=8, math=8), []
    verdicts = rejudge_errors(
        judge, asked, judged(judge, asked), lambda why, seconds: waits.append((why, seconds))
    )
    assert set(verdicts.values()) == {OK}
    assert [seconds for _, seconds in waits] == [5.0, 10.0, 20.0]
    assert "code fail on 8 of 8 responses (no connection)" in waits[0][0]
    assert "math" not in waits[0][0]
    assert {text: times for text, times in judge.asked.items() if text.startswith("math")} == {
        f"math{i}": 1 for i in range(8)
    }


def test_every_verdict_is_a_sign_of_life():
    beats: list[str] = []
    with Stopwatch(beats.append, within="measure").phase("judge") as beat:
        judge_all(FlakyJudge(failing=0), dict(enumerate(items(code=8))), beat=beat)
    assert beats[:9] == ["measure"] * 9


def test_waits_grow_to_a_minute_and_no_further_in_a_day():
    judge, asked, waits = FlakyJudge(failing=1440), items(code=8), []
    rejudge_errors(judge, asked, judged(judge, asked), lambda _, seconds: waits.append(seconds))
    assert waits[-1] == LONGEST_WAIT == max(waits)


@pytest.mark.parametrize(
    ("errors", "of", "out"), [(0, 20, 0), (15, 20, 0), (16, 20, 16), (20, 20, 20), (7, 7, 0), (7, 8, 7)]
)
def test_single_errors_are_no_outage(errors, of, out):
    verdicts = {ticket: ERROR if ticket < errors else OK for ticket in range(of)}
    assert len(failures(items(code=of), verdicts)) == out


def test_one_problem_that_nobody_can_judge_is_no_outage():
    ((problem, text),) = items(code=1)
    assert failures([(problem, text)] * 16, dict.fromkeys(range(16), ERROR)) == []


def test_an_error_is_judged_once_more_at_once_and_no_more_often():
    for failing, status in ((1, "ok"), (2, "error")):
        judge, asked = FlakyJudge(failing), items(code=1, math=8)
        verdicts = rejudge_errors(judge, asked, judged(judge, asked), lambda why, seconds: pytest.fail(why))
        assert (verdicts[0].status, judge.asked) == (
            status,
            Counter({"code0": 2, **{f"math{i}": 1 for i in range(8)}}),
        )


def test_judges_that_cannot_be_started_are_waited_for():
    waits = []
    judge_all(AbsentJudge(failing=0), dict(enumerate(items(math=3))), lambda *wait: waits.append(wait))
    why = "paused: no judge can be started (no memory); trying again in 4 s; Ctrl-C saves and stops"
    assert waits == [(why, 4.0)] * 3


@pytest.mark.parametrize("judge", [FlakyJudge(failing=100), AbsentJudge(failing=0)])
def test_who_waits_may_end_it(judge):
    asked = dict(enumerate(items(code=8)))

    def stop(_why, _seconds):
        raise WaitEnded

    with pytest.raises(WaitEnded):
        rejudge_errors(judge, list(asked.values()), judge_all(judge, asked, stop), stop)


def byte_tokenizer(*, special_tags, template):
    """A stranger's tokenizer: bytes, one end token, and think tags that may be marked special."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE(vocab={byte: id_ for id_, byte in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<eos>"])
    tags = [AddedToken(tag, special=special_tags, normalized=False) for tag in ("<think>", "</think>")]
    (backend.add_special_tokens if special_tags else backend.add_tokens)(tags)
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<eos>", chat_template=template)


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(["What is 1 + 2?"] * 4, 512)


def test_a_prompt_opens_the_assistants_turn_with_two_tokens_of_overhead(tokenizer):
    ids = ChatRenderer(tokenizer).encode("What is 1 + 2?")
    assert len(ids) == len(tokenizer.encode("What is 1 + 2?")) + 2
    assert tokenizer.decode(ids) == "<|im_start|>What is 1 + 2?<|im_sep|>"


@pytest.mark.parametrize("special_tags", [False, True])
def test_decode_drops_special_tokens_but_keeps_the_tags(special_tags):
    tokenizer = byte_tokenizer(special_tags=special_tags, template=None)
    tokens = tokenizer.encode("<think>1+1</think>2<eos>")
    assert ChatRenderer(tokenizer).decode(tokens) == "<think>1+1</think>2"


def test_decode_leaves_the_text_as_it_is(tokenizer):
    text = respond("1 , 2 .  3 n't", " -4 ")
    tokens = tokenizer.encode(text + END + USER)
    assert ChatRenderer(tokenizer).decode(tokens) == text


def test_a_prompt_does_not_end_with_the_end_that_the_tokenizer_adds(tokenizer):
    ending = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    )
    ending.eos_token = tokenizer.eos_token
    plain = ChatRenderer(ending).encode("2+2")
    ending.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {ending.eos_token}", special_tokens=[(ending.eos_token, ending.eos_token_id)]
    )
    assert ending.encode("2+2")[-1] == ending.eos_token_id
    assert ChatRenderer(ending).encode("2+2") == plain


def test_without_a_chat_template_the_prompt_is_a_line():
    tokenizer = byte_tokenizer(special_tags=False, template=None)
    assert tokenizer.decode(ChatRenderer(tokenizer).encode("2+2")) == "2+2\n"


TURN = "{{ messages[0]['content'] }}\n"


@pytest.mark.parametrize(
    ("opening", "expected"),
    [("<think>\n", None), ("<think>\n\n</think>\n", "4"), ("", "4")],
    ids=["open", "closed", "none"],
)
def test_thinking_that_the_template_opens_counts_as_thinking(opening, expected):
    template = TURN + "{% if add_generation_prompt %}" + opening + "{% endif %}"
    tokenizer = byte_tokenizer(special_tags=False, template=template)
    text = ChatRenderer(tokenizer).decode(tokenizer.encode("perhaps <answer>4</answer>"))
    assert extract_answer(text) == expected


@pytest.mark.parametrize(
    "make",
    [lambda: byte_tokenizer(special_tags=False, template=None), lambda: train_tokenizer(["a b c"], 512)],
    ids=["plain", "own"],
)
def test_an_empty_prompt_is_still_a_prompt(make):
    assert len(ChatRenderer(make()).encode("")) >= 1
