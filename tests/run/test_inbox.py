"""The inbox: what is sent arrives, once, whatever else lies in it."""

import json
import multiprocessing
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prorl.envs.files import StorageError
from prorl.run.inbox import MAX_LINE, UNREADABLE, Command, new_command, next_command, send
from support.commands import files_limited_to


@pytest.fixture
def inbox(tmp_path):
    return tmp_path / "inbox.jsonl"


def read_all(inbox, position=0, last=""):
    """Everything behind a position, as a trainer takes it in."""
    commands = []
    while (command := next_command(inbox, position, last)) is not None:
        commands.append(command)
        position, last = command.end, command.id or last
    return commands


def commands(inbox, *position):
    return [replace(command, end=0) for command in read_all(inbox, *position)]


def test_commands_arrive_once_as_sent_and_in_order(inbox):
    assert commands(inbox) == []
    sent = [
        new_command("pause"),
        new_command("set", settings={"kl.coef": 5e-4, "clip.dual": None}),
        new_command("note", text="a “quoted” word, half a pair \ud800"),
    ]
    for command in sent:
        send(inbox, command)
    assert commands(inbox) == sent
    assert len({command.id for command in sent}) == 3
    *_, last = read_all(inbox)
    assert next_command(inbox, last.end, last.id) is None
    send(inbox, later := new_command("resume"))
    assert commands(inbox, last.end, last.id) == [later]


@given(st.integers(1, 200))
def test_a_torn_last_line_waits_until_it_is_whole(tmp_path_factory, missing):
    inbox = tmp_path_factory.mktemp("torn") / "inbox.jsonl"
    send(inbox, first := new_command("pause"))
    send(inbox, second := new_command("note", text="x" * 200))
    whole = inbox.read_bytes()
    inbox.write_bytes(whole[:-missing])
    assert commands(inbox) == [first]
    inbox.write_bytes(whole)
    assert commands(inbox) == [first, second]


def test_a_sender_that_died_in_the_middle_of_a_line_costs_only_its_own_command(inbox):
    inbox.write_bytes(b'{"id": "ab", "ord')
    send(inbox, command := new_command("pause"))
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
        b'{"id": "ab"}',
        b'{"id": 7, "name": "pause"}',
        b'{"id": "", "name": "pause"}',
        b'{"id": "NaN", "name": "pause"}',
        b'{"id": "ab", "name": null}',
        b'{"id": "ab", "name": "pause", "sudo": true}',
        b'{"id": "ab", "name": "set", "settings": [1]}',
        b'{"id": "ab", "name": "set", "settings": {"kl.coef": {"ramp": "linear"}}}',
        b'{"id": "ab", "name": "note", "text": ["x"]}',
        b'{"id": "ab", "name": "note", "text": "' + b"x" * MAX_LINE + b'"}',
        b'{"id": "ab", "name": "set", "settings": {"kl.coef": ' + b"9" * 5000 + b"}}",
    ],
)
def test_nonsense_is_one_unreadable_command_and_what_follows_is_read(inbox, line):
    inbox.write_bytes(line + b"\n")
    send(inbox, command := new_command("pause"))
    nonsense, good = commands(inbox)
    assert (nonsense.name, nonsense.id) == (UNREADABLE, "")
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
    inbox.write_bytes(json.dumps({"id": "ab", "name": "note", "text": "a\n b\t c"}).encode() + b"\n\n")
    assert commands(inbox) == [Command(id="ab", name="note", text="a b c")]


def test_an_inbox_that_was_edited_goes_on_behind_the_last_command_that_was_read(inbox):
    sent = [new_command(word) for word in ("pause", "resume", "save")]
    for command in sent:
        send(inbox, command)
    *_, second, third = read_all(inbox)
    inbox.write_bytes(inbox.read_bytes().split(b"\n", 1)[1])  # somebody deletes the first line
    assert commands(inbox, second.end, second.id) == [replace(third, end=0)]


def test_an_inbox_that_was_replaced_is_not_obeyed_twice(inbox):
    for word in ("pause", "resume"):
        send(inbox, new_command(word))
    *_, last = read_all(inbox)
    inbox.unlink()
    assert next_command(inbox, last.end, last.id) is None
    send(inbox, new_command("stop"))
    (lost,) = read_all(inbox, last.end, last.id)
    assert lost.name == UNREADABLE
    send(inbox, again := new_command("stop"))
    assert commands(inbox, lost.end, last.id) == [again]


def test_a_command_that_is_too_long_is_not_sent(inbox):
    with pytest.raises(StorageError, match="say it shorter"):
        send(inbox, new_command("note", text="x" * MAX_LINE))
    assert not inbox.exists()


def test_a_full_disk_leaves_the_inbox_as_it_was(inbox):
    send(inbox, first := new_command("pause"))
    with files_limited_to(inbox.stat().st_size + 10), pytest.raises(StorageError, match="free some space"):
        send(inbox, new_command("resume"))
    assert commands(inbox) == [first]


def _send_many(path, number):
    for _ in range(number):
        send(path, new_command("note", text="x" * 50))


def test_many_senders_at_once_lose_nothing(inbox):
    fork = multiprocessing.get_context("fork")
    senders = [fork.Process(target=_send_many, args=(inbox, 10)) for _ in range(3)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    assert len({command.id for command in commands(inbox)}) == 30
