"""`oncegate events resend`: past events are sent once more, others are left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncegate.cli.main import main
from oncegate.testing.waiting import wait_until
from tests.service.site import Site, TeamHandler, settings
from tests.service.test_dispatch import _follow, _publish, _pushed


def test_a_delivered_event_is_sent_once_more(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the same id, key and seq; an unknown one is told on one line."""
    team = TeamHandler()
    word = ["--url", f"sqlite:///{tmp_path}/ledger.db", "--reason", "they lost it"]
    with team.serving() as url, Site(tmp_path, settings()).serving() as site:
        _follow(site.service.sender, "team", "acme", url)
        for number in (1, 2):
            _publish(site, f"e-{number}")
        wait_until(lambda: len(team.got) == 2, what="the deliveries")

        def resent() -> bool:
            return main(["events", "resend", "e-1", "--tenant", "acme", *word]) == 0

        wait_until(resent, what="the acknowledgement, then the replay")
        wait_until(lambda: len(team.got) == 3, what="the replay")
        codes = [
            main(["events", "resend", *named, *word])
            for named in (
                ["none", "--tenant", "acme"],
                ["e-1", "--tenant", "other"],
                ["e-1", "--tenant", "acme", "--endpoint", "nobody"],
            )
        ]

    assert _pushed(team)[2] == _pushed(team)[0] == ("e-1", "k", 1)
    assert codes == [2, 2, 2]
    told = capsys.readouterr()
    assert "e-1 waits to be sent to team once more" in told.out
    assert told.err.count("no event") == 2
