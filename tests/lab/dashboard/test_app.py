"""What the addresses answer, and to whom."""

import pytest
from starlette.testclient import TestClient

from prorl.commands import INBOX
from prorl.lab.dashboard.app import MAX_COMMAND, Dashboard
from support.events import stepped
from support.stories import STARTED, write_run

TOKEN = "a-token-of-some-length"
HERE = "http://127.0.0.1:8787"
RIGHT = {
    "authorization": f"Bearer {TOKEN}",
    "content-type": "application/json",
    "origin": HERE,
    "sec-fetch-site": "same-origin",
}
PAUSE = b'{"words": ["pause"]}'


@pytest.fixture
def root(tmp_path):
    return write_run(tmp_path / "runs" / "nano", [STARTED, stepped(1)]).parent


@pytest.fixture
def client(root):
    return TestClient(Dashboard(root, token=TOKEN, hosts=["trainer.example"]), base_url=HERE)


def inbox(root) -> bytes:
    path = root / "nano" / INBOX
    return path.read_bytes() if path.exists() else b""


def command(client, *, name="nano", content=PAUSE, **changes):
    headers = {key: value for key, value in {**RIGHT, **changes}.items() if value is not None}
    return client.post(f"/command/{name}", content=content, headers=headers)


# -- commands


def test_a_command_reaches_the_inbox(client, root):
    for changes in ({}, {"origin": None, "sec-fetch-site": None}):  # a program is no browser
        answer = command(client, **changes)
        assert answer.status_code == 200
        assert "obeyed when the current step ends" in answer.json()["said"]
    assert inbox(root).count(b'"pause"') == 2


def test_a_command_that_moves_a_hparam_far_is_given_once_it_is_confirmed(client, root):
    asked = command(client, content=b'{"words": ["optimizer.lr=5"]}')
    assert (asked.status_code, inbox(root)) == (409, b"")
    assert "optimizer.lr moves from" in asked.json()["said"]
    assert command(client, content=b'{"words": ["optimizer.lr=5"], "yes": 1}').status_code == 409
    assert command(client, content=b'{"words": ["optimizer.lr=5"], "yes": true}').status_code == 200


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"authorization": None}, 401),
        ({"authorization": f"Bearer {TOKEN}x"}, 401),
        ({"authorization": f"Bearer {TOKEN[:-1]}"}, 401),
        ({"authorization": f"Basic {TOKEN}"}, 401),
        ({"authorization": "Bearer tökén".encode()}, 401),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://["}, 403),
        ({"origin": "http://127.0.0.1:9999"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"content-type": "text/plain"}, 415),
        ({"content-type": None}, 415),
        ({"host": "evil.example"}, 421),
        ({"host": "evil.example:8787", "origin": "http://evil.example:8787"}, 421),
    ],
)
def test_a_command_that_may_not_be_given_changes_nothing(client, root, changes, status):
    answer = command(client, **changes)
    assert answer.status_code == status
    assert inbox(root) == b""


NO_COMMANDS = (b"", b"{", b"[]", b"null", b'{"words": "pause"}', b'{"words": [1]}', b"[" * 9000, b"\xff")


@pytest.mark.parametrize(
    ("content", "status"), [*((content, 400) for content in NO_COMMANDS), (b" " * (MAX_COMMAND + 1), 413)]
)
def test_what_is_no_command_or_more_than_any_is_refused(client, root, content, status):
    assert command(client, content=content).status_code == status
    assert inbox(root) == b""


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ('["puase"]', "did you mean 'pause'?"),
        ("[]", "say what to tell"),
        ('["kl.coef=-1"]', "kl.coef"),
        ('["note", "\\ud800"]', ""),
    ],
)
def test_a_command_is_judged_as_by_the_command(client, root, words, told):
    answer = command(client, content=f'{{"words": {words}}}'.encode())
    assert answer.status_code in (200, 422)
    assert told in answer.json()["said"]
    assert (inbox(root) == b"") == (answer.status_code == 422)


def test_without_a_token_nobody_gives_commands_and_commands_are_posted(root):
    client = TestClient(Dashboard(root, token=None), base_url=HERE)
    for given in (RIGHT["authorization"], "Bearer None", "Bearer "):
        assert command(client, authorization=given).status_code == 403
    assert client.get("/command/nano", headers=RIGHT).status_code == 405
    assert inbox(root) == b""


# -- names

ELSEWHERE = (
    "nowhere",
    "%2e%2e",
    "..%2fruns%2fnano",
    "nano%2f..%2fnano",
    "nano%2f",
    "/etc",
    "nano%00",
    "nano/evals",
)


@pytest.mark.parametrize("name", [*ELSEWHERE, ""])
def test_a_name_that_is_no_run_finds_nothing(client, root, name):
    assert command(client, name=name).status_code == 404
    assert client.get(f"/run/{name}").status_code == client.get(f"/overlay?run={name}").status_code == 404
    assert not name or client.get(f"/events/{name}").status_code == 404  # without one it is the list of runs
    assert inbox(root) == b""


@pytest.mark.parametrize("name", ["page.html", "..%2fapp.py", "%2e%2e%2fapp.py", "nothing.js", ""])
def test_only_the_page_s_own_files_are_served(client, name):
    assert client.get(f"/assets/{name}").status_code == 404


# -- what a browser is told


@pytest.mark.parametrize(
    "path",
    ["/", "/run/nano", "/run/nowhere", "/nothing", "/assets/page.js", "/assets/plotly.js", "/favicon.ico"],
)
def test_every_answer_forbids_what_the_page_does_not_need(client, path):
    headers = client.get(path).headers
    policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["script-src"] == policy["connect-src"] == "'self'"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert "access-control-allow-origin" not in headers


OWN = ("127.0.0.1:8787", "localhost:9000", "LOCALHOST", "[::1]:8787", "192.0.2.7", "trainer.example:8787")
FOREIGN = ("evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "", "[")


@pytest.mark.parametrize("host", OWN + FOREIGN)
def test_another_name_for_this_machine_is_not_answered(client, host):
    answer = client.get("/", headers={"host": host})
    assert answer.status_code == (200 if host in OWN else 421)
    assert "content-security-policy" in answer.headers


def test_both_pages_are_live_ones(client):
    assert all('src="/assets/live.js"' in client.get(path).text for path in ("/", "/run/nano"))


def test_files_are_kept_until_they_change(client):
    first = client.get("/assets/plotly.js")
    again = client.get("/assets/plotly.js", headers={"if-none-match": first.headers["etag"]})
    assert (first.status_code, again.status_code, again.content) == (200, 304, b"")
    assert "javascript" in first.headers["content-type"]
