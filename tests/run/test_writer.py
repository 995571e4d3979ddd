"""Writing beside the training: one at a time, and no error is lost."""

import threading

import pytest

from prorl.run.writer import Writer


def test_a_job_runs_beside_and_the_next_one_waits_for_it():
    writer, go, done = Writer(), threading.Event(), []
    writer.begin(lambda: go.wait(10) and done.append("first"))
    assert writer.busy
    assert done == []
    go.set()
    writer.begin(lambda: done.append("second"))
    writer.finish()
    assert done == ["first", "second"]
    assert not writer.busy


def test_an_error_is_told_once_and_not_before_the_job_has_ended():
    writer, go = Writer(), threading.Event()

    def fail():
        go.wait(10)
        raise ValueError("no room")

    writer.begin(fail)
    assert writer.take_error() is None
    go.set()
    writer.finish()
    with pytest.raises(ValueError, match="no room"):
        raise writer.take_error()
    assert writer.take_error() is None


def test_finishing_nothing_is_fine():
    Writer().finish()
