"""The creativity index on the page."""

from prorl.lab.evals.creativity import Creativity, Estimate, Lengths, Responses, Row, write_creativity
from prorl.lab.report.creativity import creativity_section
from prorl.lab.report.drawing import RAMP, drawn
from support.studies import results, study

MODELS = drawn([study("base", results([1]), step=0), study("step_000008", results([2]), step=8)])


def estimate(mean):
    return Estimate(problems=9, mean=mean, low=mean - 0.5, high=mean + 1)


def stored(path, gain):
    rows = [
        Row(part="test", domain=domain, model=model, index=estimate(index), gain=change)
        for domain in ("math", "mean")
        for model, index, change in (("base", 2.0, None), ("step_000008", 3.0, estimate(gain)))
    ]
    responses = [
        Responses(model=model, step=step, counted=18, short=0, words=40.0, floor=0.25)
        for model, step in (("base", 0), ("step_000008", 8))
    ]
    found = Creativity(
        corpus="<b>pages",
        corpus_documents=3,
        corpus_words=12_000,
        lengths=Lengths(),
        models=tuple(responses),
        rows=tuple(rows),
    )
    write_creativity(path, found)
    return path


def test_the_gain_is_told_and_every_model_is_drawn_with_its_interval(tmp_path):
    section = creativity_section(stored(tmp_path / "creativity.json", 1.0), MODELS, "key", "title")
    assert (
        "index of base is 2.00, that of step 8 3.00 (a difference of +1.00, 95 % interval +0.50 to +2.00)"
        in section.html
    )
    assert "below 0.25 (base), 0.25 (step 8)" in section.html
    assert "&lt;b&gt;pages of 12,000 words" in section.html
    _, last = section.figures[0].data
    assert (last["x"], last["y"], last["marker"]["color"]) == (["math", "mean"], [3.0, 3.0], RAMP[-1])
    assert (last["error_y"]["array"], last["error_y"]["arrayminus"]) == ([1.0, 1.0], [0.5, 0.5])


def test_a_difference_that_may_be_none_is_called_so(tmp_path):
    section = creativity_section(stored(tmp_path / "creativity.json", 0.1), MODELS, "key", "title")
    assert "which includes no change" in section.html


def test_without_an_index_there_is_no_section(tmp_path):
    assert creativity_section(tmp_path / "creativity.json", MODELS, "key", "title") is None


def test_a_damaged_file_is_said(tmp_path):
    (tmp_path / "creativity.json").write_text("{")
    assert "cannot be read" in creativity_section(tmp_path / "creativity.json", MODELS, "key", "title").html
