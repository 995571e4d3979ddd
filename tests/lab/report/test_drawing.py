"""How models and panels are drawn."""

from prorl.lab.evals.statistics import curve
from prorl.lab.report.drawing import GREY, RAMP, curve_traces, drawn, panels
from support.studies import results, study

PROBLEMS = results([3, 0, 16])
BASE, FAR = study("base", PROBLEMS, step=0), study("Qwen/<b>", PROBLEMS)
STEPS = [study(f"step_{step:06d}", PROBLEMS, step=step) for step in (10, 20, 30, 40)]


def test_the_base_is_grey_and_first_the_last_checkpoint_last_at_the_end_of_the_scale():
    models = drawn([BASE, *STEPS, FAR])
    assert [model.name for model in models] == [
        "base",
        "Qwen/<b>",
        "step 10",
        "step 20",
        "step 30",
        "step 40",
    ]
    assert models[0].color == GREY
    assert models[-1].color == RAMP[-1]
    assert len({model.color for model in models}) == len(models)


def test_a_single_checkpoint_has_the_colour_that_the_last_one_always_has():
    assert drawn([BASE, STEPS[0]])[-1].color == RAMP[-1]


def test_a_name_is_safe_in_a_figure():
    assert drawn([FAR])[0].label == "Qwen/&lt;b&gt;"


def test_a_band_goes_along_the_upper_ends_and_back_along_the_lower_ones():
    line = curve("", PROBLEMS, (1, 4, 16))
    band, drawn_line = curve_traces(drawn([BASE])[0], line, 1, legend=False)
    assert band["x"] == [1, 4, 16, 16, 4, 1]
    assert band["y"] == [*line.high, *reversed(line.low)]
    assert (band["xaxis"], drawn_line["yaxis"]) == ("x2", "y2")


def test_panels_share_a_scale_and_name_their_axes_once():
    layout = panels("abcde", {"title": {"text": "k"}}, {"title": {"text": "pass@k"}})
    assert layout["grid"]["rows"] == 2
    assert all(layout[f"yaxis{panel}"]["matches"] == "y" for panel in range(2, 6))
    assert [layout[axis]["title"]["text"] for axis in ("yaxis", "yaxis2", "yaxis4")] == [
        "pass@k",
        "",
        "pass@k",
    ]
    titled = [
        axis
        for axis in ("xaxis", *(f"xaxis{panel}" for panel in range(2, 6)))
        if layout[axis]["title"]["text"]
    ]
    assert titled == ["xaxis3", "xaxis4", "xaxis5"]  # those with no panel below
