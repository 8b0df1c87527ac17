"""12,345 of everything: every number on the page is true, grouped alike, and spelled as people spell it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest

from oncegate.cli.main import main
from oncegate.dashboard.now_page import Hour, history, tiles_of
from oncegate.dashboard.operators import Role
from oncegate.dashboard.rendering import counted, grouped, with_digits
from oncegate.maintenance.reconciler import Reconciler
from oncegate.model.states import State
from oncegate.signals import definitions as d
from oncegate.signals.alerts import Signal
from oncegate.signals.definition import Level
from oncegate.signals.measures import MINUTE_MS, measure
from oncegate.signals.snapshot import HOUR
from oncegate.store import EntryFilter, What
from oncegate.testing import ManualClock
from oncegate.wiring import Gate
from tests.dashboard.conftest import Client, Site
from tests.dashboard.scene import Scene
from tests.dashboard.serving import Stage
from tests.dashboard.test_doors import fence_of, number_on
from tests.dashboard.thousands import MANY, NEAR, SHOWN, fill_thousands

SURFACE = "/surface?name=portbase.cis"
PAGES = [
    "/",
    "/waiting",
    "/doubled?show=all",
    "/lanes?state=all",
    "/feed",
    "/surfaces",
    SURFACE,
    "/journal",
]


@pytest.fixture(scope="module")
def filled(played: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("thousands") / "many.db"
    shutil.copy(played, path)
    fill_thousands(path)
    return path


@pytest.fixture
def site(filled: Path, tmp_path: Path, stage: Stage) -> Iterator[Site]:
    path = tmp_path / "oncegate.db"
    shutil.copy(filled, path)
    scene = Scene(f"sqlite:///{path}?synchronous=NORMAL")
    with stage.showing(scene.gate.dashboard(login=True)) as address:
        yield Site(scene, address)
    scene.gate.close()


def text_of(client: Client, path: str) -> str:
    """What a person reads on a page."""
    reply = client.get(path)
    assert reply.status == 200, path
    body = reply.text.partition("<main")[2]
    body = re.sub(r"<time [^>]*>[^<]*</time>|<code>.*?</code>|<script.*?</script>|<svg.*?</svg>", "", body)
    return unescape(re.sub(r"<[^>]*>", " ", body))


@pytest.mark.slow
def test_every_number_on_every_page_is_grouped_and_none_is_spelled_out(site: Site) -> None:
    client = site.client(Role.APPROVER)
    for path in PAGES:
        text = text_of(client, path)
        assert "\\u202f" not in text, path
        assert re.findall(r"(?<![\w.:#-])[1-9]\d{3,}(?![\w.:-])", text) == [], path
        assert re.findall(r"\d,\d{3}", text) == [], path


@pytest.mark.slow
def test_the_numbers_are_those_of_the_ledger(site: Site) -> None:
    client = site.client(Role.APPROVER)
    now = text_of(client, "/")
    assert re.search(rf"Approvals\s+payouts\s+{NEAR} held", now)
    assert re.search(rf"orders\s+{NEAR} keys", now)
    assert re.search(r"12\u202f35\d events wait for you", now)
    assert re.search(rf"Replays\s+{NEAR}", now)
    assert re.search(NEAR, text_of(client, "/feed"))
    assert re.search(NEAR, text_of(client, SURFACE))


@pytest.mark.slow
def test_no_page_is_larger_than_a_phone_takes_in_a_moment(site: Site) -> None:
    client = site.client(Role.APPROVER)
    sizes = {path: len(client.get(path).text.encode()) for path in [*PAGES, "/entries"]}
    assert {path: size for path, size in sizes.items() if not 2_000 <= size <= 48 * 1024} == {}


# A count from 1,000 up without groups. What people copy (entries, keys, lanes, seqs) has no groups.
UNGROUPED = re.compile(r"(?<![\w.,:#/=-])[1-9]\d{3,}(?![\w.:/-])")
NUMBERED = frozenset({"ID", "KEY", "LANE", "HEAD SEQ", "SEQ", "ENTRY"})
COMMANDS = [
    ["signals", "--all"],
    ["signals", "repeats", "--surface", "portbase.cis"],
    ["entries", "list"],
    ["held", "list"],
    ["held", "approve", "--surface", "payouts", "--reason", "x", "--dry-run"],
    ["quarantine", "list"],
    ["lanes", "list", "--endpoint", "orders"],
    ["lanes", "blocked", "--endpoint", "orders", "--limit", "3"],
    ["dead-letters", "list", "--endpoint", "orders"],
    ["endpoints", "list"],
    ["circuits"],
    ["doctor"],
]


def ungrouped(told: str) -> list[str]:
    """Lines with a count that is not well formed; columns of numbers that are names are left out."""
    found, spans = list[str](), list[tuple[int, int]]()
    for line in told.splitlines():
        heads = [(one[0], one.start()) for one in re.finditer(r"[A-Z][A-Z0-9()]*(?: [A-Z0-9()]+)*", line)]
        if heads and line == line.upper():
            ends = [start for _, start in heads[1:]] + [len(line)]
            spans = [
                (start, end) for (name, start), end in zip(heads, ends, strict=True) if name in NUMBERED
            ]
        rest = re.sub(r"--(?:before|after) \S+", "", line)
        for start, end in spans:
            rest = rest[:start] + " " * (end - start) + rest[end:]
        if UNGROUPED.search(rest) or re.search(r"\d\.\d{4,}|\de\+\d|\\u202f", rest):
            found.append(line)
    return found


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_count_in_the_terminal_is_grouped(
    command: list[str], filled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "oncegate.db"
    shutil.copy(filled, path)
    url = ["--url", f"sqlite:///{path}"]
    if command[0] == "endpoints":
        assert main(["endpoints", "add", "orders", "https://93.184.216.34/", "--reason", "x", *url]) == 0
        capsys.readouterr()
    assert main([*command, *url]) in (0, 1)
    told = capsys.readouterr()
    assert ungrouped(told.out) + ungrouped(told.err) == []


@pytest.mark.slow
def test_the_terminal_says_the_same_numbers(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    url = ["--url", site.url]
    assert main(["held", "approve", "--surface", "payouts", "--reason", "x", "--dry-run", *url]) == 0
    assert re.search(r"12,34[5-9] to be approved by .*: 12,34[5-9] of payouts", capsys.readouterr().err)
    main(["signals", *url])
    told = capsys.readouterr().out
    assert re.search(r"lanes_blocked +orders +12,34\d +100 +12,35\d events not delivered", told)
    assert re.search(r"payouts +12,34\d +1 +12,34\d approval", told)
    assert main(["doctor", *url]) == 0
    assert re.search(r"entries .* 12,34\d held", capsys.readouterr().out)
    assert main(["endpoints", "add", "orders", "https://93.184.216.34/", "--reason", "x", *url]) == 0
    assert main(["endpoints", "list", *url]) == 0
    assert re.search(r"12,35\d +12,34\d +12,34\d", capsys.readouterr().out)
    assert main(["lanes", "blocked", "--endpoint", "orders", "--limit", "3", *url]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 4


@pytest.mark.slow
def test_a_plan_says_how_many_in_the_same_way(site: Site) -> None:
    client = site.client(Role.APPROVER)
    form = site.form(client, destination="orders", verb="retry", reason="a rehearsal")
    reply = client.post("/plans/lanes", form)
    assert reply.status == 303
    text = text_of(client, reply.headers["location"].removeprefix(client.prefix))
    assert re.findall(r"(?<![\w.:#-])[1-9]\d{4,}(?![\w.:-])", text) == []


def test_numbers_are_grouped_by_threes() -> None:
    assert unescape(str(grouped(999))) == "999"
    assert unescape(str(grouped(MANY))) == SHOWN
    assert unescape(str(grouped(-1_234_567))) == "-1\u202f234\u202f567"
    assert unescape(str(with_digits(counted(MANY, "key")))) == f"{SHOWN} keys"
    assert counted(1, "key") == "1 key"
    told = with_digits("12345 events <b>\u202e wait, seq 7, entry #12345, 2026-10-25, v12345")
    assert unescape(str(told)).startswith(f"{SHOWN} events <b>")
    assert "#12345" in str(told)
    assert "<b>" not in str(told)


def test_an_entry_that_was_approved_is_said_to_be_so(site, capsys):
    client = site.client(Role.APPROVER)
    entry = number_on(site.scene, "PAY-1")
    form = site.form(client, reason="seen", fence=str(fence_of(site, entry)))
    assert client.post(f"/entries/{entry}/approve", form).status == 303
    text = text_of(client, f"/entries/{entry}")
    assert "tried without success" not in text.lower()
    assert "approved; a reconciler or the next arrival runs it" in text.lower()
    assert main(["entries", "show", str(entry), "--url", f"sqlite:///{site.gate.engine.store.path}"]) == 0
    assert "approved; a reconciler" in capsys.readouterr().out


@pytest.mark.slow
def test_an_entry_that_was_released_or_tried_says_which(site: Site) -> None:
    client = site.client(Role.APPROVER)
    entry = site.scene.waiting(State.QUARANTINED, "routes")
    form = site.form(client, reason="seen", fence=str(fence_of(site, entry)))
    assert client.post(f"/entries/{entry}/release", form).status == 303
    assert "Released from quarantine; a reconciler" in client.get(f"/entries/{entry}").text


def test_a_bulk_release_is_no_sign_of_workers_that_die(site: Site) -> None:
    """What a person lets go on was not interrupted: no entry counts as recovered."""
    desk = site.gate.people
    with site.gate.engine.store.look() as session:
        skewed = session.entries(
            EntryFilter((State.QUARANTINED,), "routes", reason_contains="skew"), None, 9
        )
    for entry in skewed:
        desk.release(entry.entry_id, actor="Bob", reason="their clock was wrong")
    done = Reconciler(site.gate).run_once()
    site.gate.engine.sightings.flush()
    assert [one.became for one in done.looked] == ["finished"] * len(skewed)
    with site.gate.engine.store.look() as session:
        counts = measure(session, site.gate.engine.clock).counts(HOUR, "routes")
    assert (len(skewed), counts.of(What.RECONCILED), counts.of(What.RECOVER)) == (3, 0, 0)


def test_a_quiet_tile_shows_no_more_than_its_limit() -> None:
    """Limits hold for one surface: the tile shows the highest of them, and what all come to beside it."""
    signals = [
        Signal(d.QUARANTINES, name, value, Level.OK, 10.0) for name, value in (("a", 7.0), ("b", 6.0))
    ]
    (tile,) = tiles_of(signals, Hour([], []))
    assert (tile.value, tile.limit, tile.where, tile.total) == ("7", "10", "a", "13")
    (alarm,) = tiles_of(
        [Signal(d.QUARANTINES, name, 12.0, Level.TICKET, 10.0) for name in ("a", "b")], Hour([], [])
    )
    assert (alarm.value, alarm.where, alarm.total) == ("24", "a, b", "")
    (alone,) = tiles_of(signals[:1], Hour([], []))
    assert (alone.value, alone.where, alone.total) == ("7", "", "")


def test_a_curve_of_steady_traffic_ends_as_it_goes_on(tmp_path: Path) -> None:
    """One event every ten seconds, looked at in the middle of a minute: no cliff at the end."""
    clock = ManualClock()
    gate = Gate(f"sqlite:///{tmp_path / 'ledger.db'}", clock=clock)
    gate.handler("orders", key="{id}")(lambda event: None)
    clock.advance(60 - clock.wall_ms() % MINUTE_MS / 1000)
    for number in range(6 * 6 + 1):
        gate.admit_sync("orders", {"id": str(number)})
        gate.engine.sightings.flush()
        clock.advance(10)
    with gate.engine.store.look() as session:
        hour = history(session, measure(session, clock))
    gate.close()
    arrivals = [counts.arrivals for counts in hour.points]
    assert arrivals[-3:] == [12, 12, 12]
    assert sum(arrivals[:-3]) == 0
