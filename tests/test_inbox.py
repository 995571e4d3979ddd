"""The inbox: what is sent arrives, once, whatever else lies in it."""

import json
import multiprocessing
import os
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prorl.commands import MAX_LINE, UNREADABLE, Command, next_command, send
from prorl.envs.files import StorageError
from support.commands import files_limited_to


@pytest.fixture
def inbox(tmp_path):
    return tmp_path / "inbox.jsonl"


def read_all(inbox, position=0):
    """Everything behind a position, as a trainer takes it in."""
    commands = []
    while (command := next_command(inbox, position)) is not None:
        commands.append(command)
        position = command.end
    return commands


def commands(inbox, position=0):
    return [replace(command, end=0) for command in read_all(inbox, position)]


def test_commands_arrive_once_as_sent_and_in_order(inbox):
    assert commands(inbox) == []
    sent = [
        Command(name="pause"),
        Command(name="set", settings={"kl.coef": 5e-4, "clip.dual": None}),
        Command(name="note", text="a “quoted” word, half a pair \ud800"),
    ]
    for command in sent:
        send(inbox, command)
    assert commands(inbox) == sent
    *_, last = read_all(inbox)
    assert next_command(inbox, last.end) is None
    send(inbox, later := Command(name="resume"))
    assert commands(inbox, last.end) == [later]


@given(st.integers(1, 200))
def test_a_torn_last_line_waits_until_it_is_whole(tmp_path_factory, missing):
    inbox = tmp_path_factory.mktemp("torn") / "inbox.jsonl"
    send(inbox, first := Command(name="pause"))
    send(inbox, second := Command(name="note", text="x" * 200))
    whole = inbox.read_bytes()
    inbox.write_bytes(whole[:-missing])
    assert commands(inbox) == [first]
    inbox.write_bytes(whole)
    assert commands(inbox) == [first, second]


def test_a_sender_that_died_in_the_middle_of_a_line_costs_only_its_own_command(inbox):
    inbox.write_bytes(b'{"ord')
    send(inbox, command := Command(name="pause"))
    assert [found.name for found in commands(inbox)] == [UNREADABLE, "pause"]
    assert commands(inbox)[1] == command


@pytest.mark.parametrize(
    "line",
    [
        b"pause",
        b"\x00\xff\xfe\x80",
        b"[]",
        b"null",
        b"{}",
        b"[" * 5000,
        b'{"text": "pause"}',
        b'{"name": "pause", "end": 7}',
        b'{"name": null}',
        b'{"name": "pause", "sudo": true}',
        b'{"name": "set", "settings": [1]}',
        b'{"name": "set", "settings": {"kl.coef": {"ramp": "linear"}}}',
        b'{"name": "note", "text": ["x"]}',
        b'{"name": "note", "text": "' + b"x" * MAX_LINE + b'"}',
        b'{"name": "set", "settings": {"kl.coef": ' + b"9" * 5000 + b"}}",
    ],
)
def test_nonsense_is_one_unreadable_command_and_what_follows_is_read(inbox, line):
    inbox.write_bytes(line + b"\n")
    send(inbox, command := Command(name="pause"))
    nonsense, good = commands(inbox)
    assert nonsense.name == UNREADABLE
    assert len(nonsense.text) <= 80
    assert good == command


@given(st.binary(max_size=300))
def test_no_bytes_break_the_reader(tmp_path_factory, data):
    inbox = tmp_path_factory.mktemp("bytes") / "inbox.jsonl"
    inbox.write_bytes(data)
    commands = read_all(inbox)
    assert len(commands) <= data.count(b"\n")
    assert all(command.name == UNREADABLE for command in commands)


def test_a_text_is_one_line(inbox):
    inbox.write_bytes(json.dumps({"name": "note", "text": "a\n b\t c"}).encode() + b"\n\n")
    assert commands(inbox) == [Command(name="note", text="a b c")]


@pytest.mark.parametrize(
    "edit", [lambda data: b"", lambda data: data.split(b"\n", 1)[1], lambda data: b"{}" + data]
)
def test_an_inbox_that_was_edited_is_not_obeyed_twice(inbox, edit):
    for word in ("pause", "resume"):
        send(inbox, Command(name=word))
    *_, last = read_all(inbox)
    whole = inbox.read_bytes()
    inbox.unlink()
    assert next_command(inbox, last.end) is None
    inbox.write_bytes(edit(whole))
    send(inbox, Command(name="stop"))
    (lost,) = read_all(inbox, last.end)
    assert lost.name == UNREADABLE
    send(inbox, again := Command(name="stop"))
    assert commands(inbox, lost.end) == [again]


def test_a_command_that_is_too_long_is_not_sent(inbox):
    with pytest.raises(StorageError, match="say it shorter"):
        send(inbox, Command(name="note", text="x" * MAX_LINE))
    assert not inbox.exists()


def test_a_full_disk_leaves_the_inbox_as_it_was(inbox):
    send(inbox, first := Command(name="pause"))
    with files_limited_to(inbox.stat().st_size + 10), pytest.raises(StorageError, match="free some space"):
        send(inbox, Command(name="resume"))
    assert commands(inbox) == [first]


def _send_many(path, number):
    for count in range(number):
        send(path, Command(name="note", text=f"{os.getpid()} {count}" + "x" * 50))


def test_many_senders_at_once_lose_nothing(inbox):
    fork = multiprocessing.get_context("fork")
    senders = [fork.Process(target=_send_many, args=(inbox, 10)) for _ in range(3)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    assert len({command.text for command in commands(inbox)}) == 30
