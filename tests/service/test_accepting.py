"""Surfaces that answer 202 first and call the handler later, in order; handlers that can be asked."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from oncegate.errors import BadEndpoint
from oncegate.sender.addresses import AddressPolicy
from oncegate.service.settings import Mode
from oncegate.service.upstream_call import checked_probe_url
from oncegate.testing.waiting import wait_until
from tests.service.site import Site, TeamHandler, forwarding

IN_ORDER = {"mode": Mode.ACCEPT, "lane": "{order}"}


def _ids(team: TeamHandler) -> list[str]:
    return [msgspec.json.decode(body)["id"] for _, body in team.got]


def test_an_accepted_event_is_answered_before_its_handler_is_called(tmp_path: Path) -> None:
    """202 while the handler is busy; then once, in order; then repeats are replays (I2, I10)."""
    team = TeamHandler()
    team.hold.clear()
    with (
        team.serving() as url,
        Site(tmp_path, forwarding(url, IN_ORDER, honours_key="7d")).serving() as site,
    ):
        events = [{"id": f"n-{number}", "order": "o"} for number in range(5)]
        answers = [site.hook(event) for event in [*events, events[0]]]
        first_of_all = list(team.got)
        team.hold.set()
        wait_until(lambda: len(team.got) == 5, what="the handler's calls")
        wait_until(lambda: site.hook(events[4]).status == 200, what="the last outcome")
        replay = site.hook(events[0])
        other = site.hook({**events[0], "more": 1})

    assert [answer.status for answer in answers] == [202] * 6
    assert answers[0].document["state"] == "accepted"
    assert len(first_of_all) <= 1
    assert _ids(team) == [event["id"] for event in events]
    assert (replay.status, replay.document["replay"]) == (200, True)
    assert replay.document["outcome"] == {"status": 200, "body": {"slot": 7}}
    assert other.status == 422


def test_what_was_accepted_before_a_restart_is_run_after_it(tmp_path: Path) -> None:
    """Given events answered 202 while the handler was down; when the service comes back; they run."""
    team = TeamHandler()
    team.status = 429
    with team.serving() as url:
        wanted = forwarding(url, IN_ORDER, honours_key="7d")
        with Site(tmp_path, wanted).serving() as site:
            for number in range(3):
                assert site.hook({"id": f"n-{number}", "order": "o"}).status == 202
            wait_until(lambda: bool(team.got), what="a first try")
        tried = len(team.got)
        team.status = 200
        with Site(tmp_path, wanted).serving():
            wait_until(lambda: len(team.got) >= tried + 3, what="the rest")

    assert _ids(team)[tried:] == ["n-0", "n-1", "n-2"]


@pytest.mark.slow
@pytest.mark.parametrize("is_known", [True, False])
def test_a_handler_that_can_be_asked_is_asked_before_it_is_called_again(
    tmp_path: Path, is_known: bool
) -> None:
    """Given a handler that went away; the probe's 200 is the outcome, its 404 lets it run (I1).

    On a slow machine the second call may be too late as well, and is then asked about in its turn.
    """
    team = TeamHandler()
    team.status = 0
    with team.serving() as url:
        wanted = forwarding(url, probe_url=f"{url}/{{key}}", request_life_max="1s", timeout="1s")
        with Site(tmp_path, wanted).serving() as site:
            assert site.hook({"id": "n-1"}).status == 503
            if is_known:
                team.owned[team.got[0][0].strip('"')] = b'{"slot": 9}'
            team.status = 200
            wait_until(lambda: site.hook({"id": "n-1"}).status == 200, what="the outcome")
            outcome = site.hook({"id": "n-1"}).document["outcome"]

    assert team.asked
    assert len(team.got) == 1 if is_known else 2 <= len(team.got) <= 1 + len(team.asked)
    assert outcome == {"status": 200, "body": {"slot": 9 if is_known else 7}}


@pytest.mark.parametrize(
    "template",
    [
        "https://a.example/slots",
        "https://{key}/slots",
        "https://a.example/{key}/{key}",
        "http://a.example/{key}",
    ],
)
def test_an_address_that_no_key_can_be_put_into_is_refused(template: str) -> None:
    with pytest.raises(BadEndpoint):
        checked_probe_url(template, AddressPolicy())
