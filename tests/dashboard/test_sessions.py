"""An ended session is over in every process, and who signs in again goes on where they were (I20)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from urllib.parse import quote

import pytest

from oncegate.cli.main import main
from oncegate.dashboard import sessions
from oncegate.dashboard.auth import FIELD, SESSION_MS, admit, issue, session_key
from oncegate.dashboard.operators import OperatorBook, Role, find_operator
from oncegate.dashboard.sessions import ENDED_MAX, Endings, SessionBook, endings_of
from oncegate.dashboard.sign_in_return import came_from, own_path, sign_in_path
from oncegate.errors import ConfigError, StoreBusy, StoreFull
from oncegate.model.states import State
from oncegate.store import LogKind
from oncegate.wiring import Gate
from tests.dashboard.conftest import Client, Reply, Site
from tests.dashboard.scene import Scene
from tests.dashboard.test_doors import fence_of, log_of


@pytest.fixture(params=["sqlite", "postgres"])
def place(request, stage) -> Iterator[Site]:
    """A page on either store."""
    if request.param == "sqlite":
        yield request.getfixturevalue("site")
        return
    scene = Scene(request.getfixturevalue("ledger_url"))
    with stage.showing(scene.gate.dashboard(login=True)) as address:
        yield Site(scene, address)
    scene.gate.close()


def elsewhere(client: Client) -> Client:
    """Another browser with a copy of the cookie."""
    other = Client(f"http://{client.netloc}{client.prefix}")
    other.cookie = client.cookie
    return other


def is_admitted(gate: Gate, client: Client) -> bool:
    """Whether a gate of another process would let the cookie in."""
    with gate.engine.store.look() as session:
        return admit(session, client.cookie.partition("=")[2], gate.engine.clock.wall_ms()) is not None


def test_signing_out_ends_the_session_wherever_its_cookie_is(place: Site) -> None:
    client = place.client(Role.VIEWER)
    second = place.client(Role.VIEWER)
    copied = elsewhere(client)
    another = Gate(store=place.gate.engine.store)
    assert copied.get("/entries").status == 200

    assert client.post("/logout", {}).status == 303

    assert copied.get("/entries").status == 303
    assert not is_admitted(another, copied), "another process knows at once"
    assert second.get("/entries").status == 200, "another session of the same operator goes on"
    assert place.client(Role.VIEWER).get("/entries").status == 200, "and a new one can be opened"


def test_signing_out_everywhere_ends_all_sessions_of_the_operator_and_no_others(place: Site) -> None:
    clients = [place.client(Role.VIEWER) for _ in range(3)]
    other = place.client(Role.OPERATOR)
    assert clients[0].post("/logout", {"everywhere": "1"}).status == 303
    assert [client.get("/entries").status for client in clients] == [303] * 3
    assert other.get("/entries").status == 200
    assert place.client(Role.VIEWER).get("/entries").status == 200
    told = [(one.actor, one.note) for one in log_of(place) if one.kind is LogKind.SIGNED_OUT]
    assert told == [("viewer-all", "everywhere, from 127.0.0.1")]


def test_a_new_token_ends_the_sessions_of_the_old_one(place: Site) -> None:
    client = place.client(Role.VIEWER)
    token = OperatorBook(place.gate.engine.commits, place.gate.engine.clock).rotate("viewer-all", "ada")
    assert client.get("/entries").status == 303
    assert client.sign_in(place.tokens["viewer-all"]).status == 403
    assert client.sign_in(token).status == 303
    assert client.get("/entries").status == 200


def test_the_command_line_rotates_and_signs_out(site, scene, capsys):
    url = f"sqlite:///{scene.gate.engine.store.path}"
    client = site.client(Role.VIEWER)
    assert main(["operators", "sign-out", "viewer-all", "--url", url, "--as", "ada"]) == 0
    assert client.get("/entries").status == 303
    assert client.sign_in(site.tokens["viewer-all"]).status == 303
    assert main(["operators", "rotate", "viewer-all", "--url", url, "--as", "ada"]) == 0
    token = capsys.readouterr().out.splitlines()[-1]
    assert client.get("/entries").status == 303
    assert client.sign_in(token).status == 303
    for verb in ("sign-out", "rotate"):
        assert main(["operators", verb, "nobody", "--url", url]) == 2
    assert "no operator is called 'nobody'" in capsys.readouterr().err
    with pytest.raises(ConfigError):
        OperatorBook(scene.gate.engine.commits, scene.gate.engine.clock).rotate("nobody", "ada")


def test_a_session_that_cannot_be_ended_in_the_ledger_is_said_to_be_open(site: Site, monkeypatch) -> None:
    """The browser forgets it all the same."""
    client = site.client(Role.VIEWER)

    def full(*_, **__):
        raise StoreFull("the disk is full")

    monkeypatch.setattr(site.gate.engine.commits, "submit", full)
    reply = client.post("/logout", {})
    assert reply.status == 503
    assert "oncegate operators sign-out" in reply.text
    assert 'oncegate_page=""' in reply.headers["set-cookie"]


def test_ended_sessions_are_forgotten_with_their_time_and_bounded() -> None:
    endings = Endings()
    for number in range(ENDED_MAX):
        endings = endings.with_one(f"s{number}", 1_000 + number, 0)
    assert (endings.generation, len(endings.ended)) == (0, ENDED_MAX)
    assert len(endings.with_one("late", 9_999, 1_010).ended) == ENDED_MAX - 10
    crowded = endings.with_one("one too many", 9_999, 0)
    assert (crowded.generation, crowded.ended) == (1, {})
    assert all(crowded.has_ended(0, f"s{number}") for number in (0, 5, 999))


def test_two_who_end_sessions_at_once_both_do(site: Site, monkeypatch) -> None:
    """The second finds the version changed, and looks again."""
    book = SessionBook(site.gate.engine.commits, site.gate.engine.clock)
    read, meanwhile = SessionBook._read, ["first"]

    def interrupted(one, name):
        found = read(one, name)
        if meanwhile:
            book.end(name, meanwhile.pop(), 9_999_999_999_999, "first")
        return found

    monkeypatch.setattr(SessionBook, "_read", interrupted)
    book.end("ada", "second", 9_999_999_999_999, "second")
    with site.gate.engine.store.look() as session:
        assert set(endings_of(session, "ada").ended) == {"first", "second"}
    monkeypatch.setattr(sessions, "TRIES_MAX", 0)
    with pytest.raises(StoreBusy):
        book.end("ada", "third", 1, "x")
    with pytest.raises(StoreBusy):
        book.end_all("ada", "ada", "x")


def test_a_cookie_of_an_earlier_generation_is_over(site: Site) -> None:
    site.token(Role.VIEWER)
    now = site.gate.engine.clock.wall_ms()
    with site.gate.engine.store.look() as session:
        known = find_operator(session, "viewer-all")
        assert known is not None
        key = session_key(session)
        assert admit(session, issue(key, known, now), now + SESSION_MS - 1) is not None
        assert admit(session, issue(key, known, now, generation=1), now) is None
        assert admit(session, issue(key, known, now), now + SESSION_MS) is None


def test_a_session_of_another_page_on_the_same_host_does_not_hide_ones_own(site: Site) -> None:
    """A browser sends the cookies of all ports of a host, of longer and of shorter paths."""
    client = site.client(Role.VIEWER)
    value = client.cookie
    for given in (f"{value}; oncegate_page=1.0.9.x.y.z", f"oncegate_page=stale; a=b; {value}"):
        client.cookie = given
        assert client.get("/entries").status == 200
    client.cookie = f"{'oncegate_page=stale; ' * 9}{value}"
    assert client.get("/entries").status == 303, "no more than a few are tried"


def hidden(text: str, name: str) -> str:
    found = re.search(rf'name="{name}" value="([^"]*)"', text)
    return "" if found is None else unescape(found[1])


def test_who_followed_a_link_lands_there_after_signing_in(site: Site) -> None:
    asked = "/entries?q=state%3Aheld&before=7"
    client = site.client()
    there = client.get(asked).headers["location"].removeprefix(client.prefix)
    form = client.get(there).text
    assert hidden(form, "next") == asked
    refused = client.post("/login", {"token": "ogp_wrong", "next": asked})
    assert hidden(refused.text, "next") == asked
    reply = client.post("/login", {"token": site.token(Role.VIEWER), "next": asked})
    assert (reply.status, reply.headers["location"]) == (303, f"{client.prefix}{asked}")


@pytest.mark.parametrize(
    "text",
    [
        "https://evil.example/", "//evil.example", "/\\evil.example", "\\\\evil.example", "evil.example",
        "/x\r\nset-cookie: a=b", "/\t/evil.example", "javascript:alert(1)", "/é", "/login?next=/",
        "/logout", "/static/page.js", "/" + "a" * 3_000, "",
    ],
)  # fmt: skip
def test_nobody_is_led_to_another_site(site: Site, text: str) -> None:
    assert own_path(text) is None
    assert sign_in_path(text) == "/login"
    client = site.client()
    reply = client.post("/login", {"token": site.token(Role.VIEWER), "next": text})
    assert (reply.status, reply.headers["location"]) == (303, f"{client.prefix}/")
    assert hidden(site.client().get(f"/login?next={quote(text)}").text, "next") == ""


def test_a_fragment_without_a_session_says_that_it_is_over(site: Site) -> None:
    """The script of the page tells an ended session from a server that cannot be reached."""
    client = site.client(Role.VIEWER)
    copied = elsewhere(client)
    client.post("/logout", {})
    assert copied.get("/entries", x_oncegate_fragment="1").status == 401


def approve(site: Site, client: Client, entry: int, **fields: str) -> Reply:
    form = site.form(client, reason="the crane says <it> & so do I", fence=str(fence_of(site, entry)))
    referrer = f"http://{client.netloc}{client.prefix}/entries/{entry}"
    return client.post(f"/entries/{entry}/approve", {**form, **fields}, referer=referrer)


def test_a_form_of_a_dead_session_is_shown_again_after_signing_in(site: Site) -> None:
    """Nothing is changed until its writer sends it once more, with the reason they had typed."""
    entry = site.scene.waiting(State.HELD, "payouts")
    client = site.client(Role.APPROVER)
    ended = elsewhere(client)
    ended.post("/logout", {})
    before = fence_of(site, entry)

    refused = approve(site, client, entry)

    assert refused.status == 401
    assert "nothing was changed" in refused.text
    login = {name: hidden(refused.text, name) for name in ("next", "kept_path", "kept")}
    assert login["next"] == f"/entries/{entry}"
    assert client.post("/login", {**login, "token": "wrong"}).status == 403
    shown = client.post("/login", {**login, "token": site.token(Role.APPROVER)})
    assert shown.status == 200
    assert hidden(shown.text, "reason") == "the crane says <it> & so do I"
    assert f'href="{client.prefix}/entries/{entry}"' in shown.text
    assert fence_of(site, entry) == before
    assert [one for one in log_of(site) if one.kind is LogKind.APPROVED] == []

    client.cookie = shown.headers["set-cookie"].partition(";")[0]
    sent = {name: hidden(shown.text, name) for name in (FIELD, "reason", "fence")}
    assert client.post(f"/entries/{entry}/approve", sent).status == 303
    (record,) = [one for one in log_of(site) if one.kind is LogKind.APPROVED]
    assert "the crane says <it> & so do I" in (record.note or "")


def test_a_form_of_an_earlier_session_is_shown_again_in_this_one(site: Site) -> None:
    entry = site.scene.waiting(State.HELD, "payouts")
    old, client = site.client(Role.APPROVER), site.client(Role.APPROVER)
    stale = site.form(old)[FIELD]
    refused = approve(site, client, entry, **{FIELD: stale})
    assert refused.status == 403
    assert hidden(refused.text, "reason") == "the crane says <it> & so do I"
    assert hidden(refused.text, FIELD) == site.form(client)[FIELD]
    assert [one for one in log_of(site) if one.kind is LogKind.APPROVED] == []


@pytest.mark.parametrize(
    "path", ["/login", "/logout", "//evil.example/x", "https://evil.example", "/entries"]
)
def test_a_kept_form_goes_to_an_action_of_this_page_or_nowhere(site: Site, path: str) -> None:
    client = site.client()
    form = {"token": site.token(Role.APPROVER), "kept_path": path, "kept": "reason=x"}
    reply = client.post("/login", form)
    assert (reply.status, reply.headers["location"]) == (303, f"{client.prefix}/")


def test_where_a_form_came_from_is_a_path_of_ours() -> None:
    assert came_from("http://here/deep/waiting?q=a%20b", "/deep") == "/waiting?q=a%20b"
    assert came_from("http://here//evil.example/", "") == ""
    assert came_from("http://here/\\evil", "") == ""
    assert came_from("", "/deep") == ""
    assert came_from("http://[bad/waiting", "") == ""
