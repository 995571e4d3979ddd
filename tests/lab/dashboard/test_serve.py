"""The server as a process: where it listens, what it prints, how it ends."""

import http.client
import signal
from contextlib import closing, contextmanager
from urllib.parse import urlsplit

import pytest

from prorl.envs.errors import ProrlError
from prorl.lab.dashboard.app import announcement, serve
from prorl.run.store import RunStore
from support.commands import refused
from support.served import served


@pytest.fixture
def root(tmp_path):
    RunStore.create(tmp_path / "runs" / "nano", {"steps": 1})
    return tmp_path / "runs"


@contextmanager
def asked(server, method: str, path: str, *, body: str = "", **headers: str):
    """The answer to a request, as far as it came."""
    found = urlsplit(server.address)
    with closing(http.client.HTTPConnection(found.hostname, found.port, timeout=60)) as connection:
        connection.request(method, path, body=body, headers=headers)
        with connection.getresponse() as answer:
            yield answer


def test_ctrl_c_ends_at_once_with_streams_open(root, tmp_path):
    with served(root, tmp_path / "log") as server, asked(server, "GET", "/events/nano") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.readline().startswith(b"retry: ")
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(timeout=120) == 0
    assert (tmp_path / "log").read_text() == ""  # nothing was waited for in vain and cut off


def test_the_token_is_printed_once_and_nowhere_else(root, tmp_path):
    with served(root, tmp_path / "log") as server:
        wrong = {"authorization": f"Bearer {server.token[:-1]}", "content-type": "application/json"}
        with asked(server, "POST", "/command/nano", body="{}", **wrong) as answer:
            assert answer.status == 401
        with asked(server, "GET", "/run/nano") as answer:
            assert server.token not in answer.read().decode()
        assert len(server.token) >= 32
    assert server.token not in (tmp_path / "log").read_text()


def test_the_next_free_port_is_taken_unless_one_was_asked_for(root, tmp_path):
    with served(root, tmp_path / "one", "--host", "127.0.0.1") as one:
        with served(root, tmp_path / "two", "--host", "127.0.0.1") as two:
            ports = [urlsplit(server.address).port for server in (one, two)]
        with pytest.raises(ProrlError, match=r"in use.*; choose others with --host and --port"):
            serve(root, host="127.0.0.1", port=ports[0], read_only=True)
    assert 8787 <= ports[0] < ports[1] < 8807


def test_a_folder_or_host_that_is_not_there_is_one_sentence_and_a_run_has_its_name(
    root, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert "there is no folder other" in refused("dashboard", "other", "--host", "no.such.host.invalid")
    assert "nothing can be served on" in refused("dashboard", "nano", "--host", "no.such.host.invalid")


@pytest.mark.parametrize(
    ("host", "warned"),
    [("127.0.0.1", False), ("::1", False), ("localhost", False), ("0.0.0.0", True), ("h", True)],
)
def test_being_reachable_from_elsewhere_is_said(tmp_path, host, warned):
    lines = list(announcement(tmp_path, host, 80, "t"))
    assert any(line.startswith("warning:") for line in lines) == warned
    shown = "[::1]" if host == "::1" else host  # so that it can be clicked
    assert f"http://{shown}:80/#token=t" in lines[0]
    assert "#" not in next(announcement(tmp_path, host, 80, None)), "read only has no token"
