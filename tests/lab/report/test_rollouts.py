"""Rollouts on the page: few of many, spread over the run and the domains, as text and never as markup."""

import json
from dataclasses import replace
from operator import itemgetter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prorl.lab.evals.comparison import paired
from prorl.lab.evals.problems import Kept
from prorl.lab.report.page import LONGEST
from prorl.lab.report.rollouts import EARLIER, LATEST, LINES, along, in_turn, rollout_section, solvable_html
from support.evaluations import result

HOSTILE = "</pre></script><img src=x onerror=alert(1)>\ud800"
RECORD = {"task": "t", "domain": "math", "level": 1, "prompt": "p", "response": "r", "status": "ok"}


def shown(folder, step, records):
    """The rollouts of a run that stored these, too."""
    path = folder / "samples" / f"step_{step:06d}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = (one if isinstance(one, str) else json.dumps(RECORD | one) for one in records)
    path.write_text("".join(f"{line}\n" for line in lines))
    return rollout_section(folder).html


@given(st.integers(1, 500))
def test_the_newest_file_comes_first_and_the_others_are_spread_back_to_the_first(count):
    files = [Path(f"{place}") for place in range(count)]
    chosen = along(files)
    assert chosen[0] == files[-1]
    assert len(set(chosen)) == len(chosen) == min(count, 4)
    if count > 1:
        assert chosen[-1] == files[0]


def test_the_first_of_each_comes_before_the_second_of_any():
    items = ["a1", "a2", "a3", "b1", "c1", "c2"]
    assert in_turn(items, itemgetter(0), 9) == ["a1", "b1", "c1", "a2", "c2", "a3"]
    assert in_turn(items, itemgetter(0), 4) == ["a1", "b1", "c1", "a2"]


def test_a_file_of_another_name_is_passed_over(tmp_path):
    before = shown(tmp_path, 1, [{}])
    path = tmp_path / "samples" / "step_000001.jsonl"
    path.with_name('step_1"><img src=x>.jsonl').write_bytes(path.read_bytes())
    assert rollout_section(tmp_path).html == before


def test_domains_are_shown_alike(tmp_path):
    code = [{"domain": "code", "prompt": f"code {at}"} for at in range(3)]
    html = shown(tmp_path, 1, [*({"prompt": str(at)} for at in range(50)), *code])
    assert (html.count("<h4>t · math"), html.count("<h4>t · code")) == (LATEST - 3, 3)


def test_responses_stand_below_their_problem_and_its_right_answer(tmp_path):
    asked = [{"prompt": "2 + 2?", "answer": "<4>", "response": text} for text in ("4", "5")]
    html = shown(tmp_path, 1, [*asked, {"prompt": "3?", "answer": ""}])
    assert (html.count("2 + 2?"), html.count("right answer: <code>&lt;4&gt;</code>")) == (1, 1)
    assert html.count('class="response') == 3
    assert html.count("right answer") == 1


def test_only_a_few_files_are_opened_and_only_their_first_lines_parsed(tmp_path, monkeypatch):
    for step in range(50):
        shown(tmp_path, step, [{"prompt": f"step {step} line {line}"} for line in range(LINES + 20)])
    opened = []
    plain = Path.open
    monkeypatch.setattr(Path, "open", lambda path, *rest: opened.append(path.name) or plain(path, *rest))
    html = rollout_section(tmp_path).html
    assert len(opened) == 4
    assert html.count('class="rollout"') == LATEST + 3 * EARLIER
    assert f"line {LINES}" not in html


def test_a_verdict_is_a_word_and_a_colour(tmp_path):
    statuses = {"ok": "passed", "wrong": "failed", "error": "not judged", "unheard of": "unheard of"}
    html = shown(tmp_path, 3, [{"response": status, "status": status} for status in statuses])
    for status, word in statuses.items():
        kind = "error" if word == status else status
        assert f'<div class="response {kind}"><p><span class="verdict">{word}</span>' in html


def test_a_response_that_was_not_judged_shows_its_reason_and_no_score(tmp_path):
    html = shown(tmp_path, 3, [{"status": "error", "score": 0.0, "tokens": 7, "note": "deadline"}])
    assert "not judged</span> 7 tokens · deadline" in html
    assert "score" not in html
    assert "score 0.0" in shown(tmp_path, 4, [{"status": "wrong", "score": 0.0}])


def test_what_a_model_wrote_stays_text_and_a_long_text_loses_its_middle(tmp_path):
    fields = ("prompt", "response", "note", "task", "domain", "status")
    html = shown(tmp_path, 3, [dict.fromkeys(fields, HOSTILE)])
    assert "<img" not in html
    assert html.count("&lt;img") == 7, "the task is also what a filter looks at"
    html.encode()
    html = shown(tmp_path, 4, [{"response": f"begin{'x' * 3 * LONGEST}end"}]).split("<details>")[0]
    assert len(html) < 2 * LONGEST
    assert all(part in html for part in ("begin", "xend<", "characters left out"))


def test_lines_that_are_no_record_are_passed_over_and_so_is_an_empty_file(tmp_path):
    assert "No rollout" in rollout_section(tmp_path).html
    html = shown(tmp_path, 3, [{}, '{"prompt": "no response"}', "[]", '{"torn'])
    assert html.count('class="rollout"') == 1
    assert "Step 3: 1 rollout<" in html
    assert shown(tmp_path, 4, []) == html


@pytest.fixture
def solvable():
    def kept(text, score, sample=0):
        status = "ok" if score == 1 else "wrong"
        return Kept(sample=sample, text=text, tokens=5, finish="stop", score=score, status=status, note="")

    base, trained = [], []
    for index, domain in enumerate("ab" * 20):
        base.append(result(0, index=index, domain=domain, kept=(kept(f"wrong {index}", 0.0),)))
        right = kept("no", 0.0), kept(f"right {index}", 1.0, 3)
        trained.append(result(1 + index % 9, index=index, domain=domain, kept=right))
    return paired(base, trained)


def test_a_newly_solvable_problem_shows_the_wrong_and_the_right_response(solvable):
    html = solvable_html(solvable)
    assert html.count("<details>") == 12
    assert "12 of 40 problems" in html
    first = html.split("<details>")[1]
    assert "0 of 16 → 9 of 16" in first
    index = first.split("wrong ")[1].split("<")[0]
    assert f"right {index}<" in first
    assert ">no<" not in html


def test_where_nothing_became_solvable_it_says_so(solvable):
    assert "No problem" in solvable_html(
        [replace(move, trained=move.base, least=(move.least[0],) * 2) for move in solvable]
    )
