"""`oncegate worker` and `oncegate reconcile`: with a program's own handlers, and without."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import IO

import pytest

from oncegate import Gate, open_store
from oncegate.maintenance.jobs import DOES, KINDS
from oncegate.model.states import State
from oncegate.store import Reservation
from oncegate.testing.waiting import DEADLINE_SECONDS
from tests.cli.conftest import Ended, clean_environment, contents

PROGRAM = """
import os, signal, sys
from pathlib import Path
from oncegate import Gate

gate = Gate()
ect = gate.downstream("ect", honours_key="7d")
number = 5


def claim(container, idempotency_key):
    Path(f"slot-{container}-{idempotency_key}").touch()
    return {"id": f"slot-{container}"}


@gate.handler("bookings", key="{id}", lease="1ms")
def book(event, once):
    slot = once.effect(ect, claim, event["id"], name="claim")
    if __name__ == "__main__":
        os.kill(os.getpid(), signal.SIGKILL)
    if event["id"] == "hang":
        print("hanging", flush=True)
        while True:
            pass
    return slot


if __name__ == "__main__":
    gate.admit_sync("bookings", {"id": sys.argv[1]})
"""
SLOW = """
import asyncio, os, signal, threading
from oncegate import Gate

gate = Gate()
ect = gate.downstream("ect", honours_key="7d")


async def claim(idempotency_key):
    return {"id": "slot"}


@gate.handler("bookings", key="{id}", lease="1ms")
async def book(event, once):
    slot = await once.effect(ect, claim, name="claim")
    if __name__ == "__main__":
        os.kill(os.getpid(), signal.SIGKILL)
    print("running", flush=True)
    async with asyncio.timeout(60):
        while any(thread.name == "oncegate-watch" for thread in threading.enumerate()):
            await asyncio.sleep(0.001)  # until the worker is stopping
    for _ in range(1000):
        await asyncio.sleep(0)
    return slot


if __name__ == "__main__":
    asyncio.run(gate.admit("bookings", {"id": "slow"}))
"""
LATER = """
from oncegate import Gate

gate = Gate()


@gate.handler("orders", key="{id}", mode="accept")
def take(event, once):
    print("took", event["id"], flush=True)
"""
BROKEN = "import no_such_thing_at_all"
EMPTY = "from oncegate import Gate\ngate = Gate()"
RAISING = "raise RuntimeError('no settings')"
PROGRAMS = {
    "shop": PROGRAM,
    "slow": SLOW,
    "later": LATER,
    "broken": BROKEN,
    "raising": RAISING,
    "empty": EMPTY,
}


@pytest.fixture(scope="session")
def template_shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a program, and a ledger in which one of its processes died; made once."""
    folder = tmp_path_factory.mktemp("shop")
    for name, text in PROGRAMS.items():
        (folder / f"{name}.py").write_text(text)
    die(folder, "MSKU1")
    return folder


@pytest.fixture
def shop(template_shop: Path, tmp_path: Path) -> Path:
    """A copy of the template, as the test's own folder."""
    shutil.copytree(template_shop, tmp_path, dirs_exist_ok=True)
    return tmp_path


def die(folder: Path, container: str, program: str = "shop", **variables: str) -> None:
    """A process that is killed after its slot was sold."""
    done = subprocess.run(
        [sys.executable, f"{program}.py", container],
        cwd=folder,
        env=environment() | variables,
        check=False,
        timeout=DEADLINE_SECONDS,
    )
    assert done.returncode == -signal.SIGKILL


def environment() -> dict[str, str]:
    return clean_environment(PYTHONPATH=str(Path(__file__).parents[2] / "src"), PYTHONUNBUFFERED="1")


Started = subprocess.Popen[str]


@pytest.fixture
def worker(shop: Path) -> Iterator[Callable[..., Started]]:
    """Starts `oncegate worker` as a process; a process that is left is killed afterwards."""
    started: list[Started] = []

    def start(*words: str, **variables: str) -> Started:
        command = [sys.executable, "-m", "oncegate", "worker", "--reconcile-every", "50ms", *words]
        process = subprocess.Popen(
            command, cwd=shop, env=environment() | variables,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate(timeout=DEADLINE_SECONDS)


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest) -> dict[str, str]:
    """The ledger of a program's process, on each store, as its environment."""
    if request.param == "sqlite":
        return {"ONCEGATE_URL": "sqlite:///fresh.db"}
    return {"ONCEGATE_URL": request.getfixturevalue("ledger_url")}


def read_until(stream: IO[str] | None, wanted: str) -> list[str]:
    """Reads lines up to one that is wanted; fails where the process ends before it."""
    assert stream is not None
    lines: list[str] = []
    while not lines or wanted not in lines[-1]:
        lines.append(stream.readline())
        assert lines[-1], lines
    return lines


@pytest.fixture(autouse=True)
def _forget_programs() -> Iterator[None]:
    """Each test's program is a module of its own, whatever it is called, found in its own folder."""
    path = list(sys.path)
    yield
    sys.path[:] = path
    for name in PROGRAMS:
        sys.modules.pop(name, None)


@pytest.mark.slow
def test_reconcile_without_the_program_lists_and_changes_nothing(
    shop: Path, call: Callable[..., Ended]
) -> None:
    """Handlers are needed to act, and it says so."""
    before = contents(shop)
    listed = call("reconcile", "--once")
    assert listed.code == 0
    assert "in_flight" in listed.out
    assert "each effect by what its downstream can do" in listed.out
    assert "--app module:name" in listed.err
    assert contents(shop) == before
    (line,) = call("reconcile", "--json").out.splitlines()
    assert (json.loads(line)["surface"], json.loads(line)["label"]) == ("bookings", "MSKU1")


def test_a_started_unrepeatable_step_is_told_to_need_a_person(
    ledger: Path, call: Callable[..., Ended]
) -> None:
    """As far as recorded: the ledger knows which step was begun where."""
    from oncegate import open_store
    from oncegate.store import Reservation, StepRecord, StepRecords, StepState

    session = open_store(f"sqlite:///{ledger}").connect()
    reserved = Reservation(b"k" * 24, "", "mails", "m", b"f" * 16, b"{}", 1, 0, 8, 1)
    with session.unit():
        (claim,) = session.reserve([reserved])
        step = StepRecord("send", StepState.STARTED, "mail")
        session.progress([StepRecords(*claim.claim, (step,), 1)])
    session.close()
    listed = call("reconcile", "--once")
    assert "send was begun at mail, which can only be called once: a person" in listed.out


def test_reconcile_with_the_program_finishes_and_tells(shop: Path, call: Callable[..., Ended]) -> None:
    """A table of what became of each key; a second time there is nothing to do."""
    done = call("reconcile", "--once", "--app", "shop:gate")
    assert (done.code, "finished" in done.out) == (0, True)
    assert "1 looked at, 1 finished" in done.err
    again = call("reconcile", "--once", "--app", "shop:gate", "--json")
    assert (again.code, again.out) == (0, "")
    assert "nothing is stranded" in again.err


def test_reconcile_tells_programs_in_json(shop: Path, call: Callable[..., Ended]) -> None:
    """One object a key."""
    (line,) = call("reconcile", "--once", "--app", "shop:gate", "--json").out.splitlines()
    told = json.loads(line)
    assert (told["id"], told["surface"], told["became"], told["reason"]) == (
        1,
        "bookings",
        "finished",
        None,
    )


@pytest.mark.parametrize(
    ("app", "complaint"),
    [
        ("shop", "does not name a gate; write it as module:name"),
        (":gate", "does not name a gate"),
        ("nowhere:gate", "there is no module 'nowhere'"),
        ("shop.deep:gate", "there is no module 'shop.deep'"),
        ("broken:gate", "broken needs no_such_thing_at_all, which cannot be imported"),
        ("raising:gate", "importing raising raised RuntimeError: no settings"),
        ("shop:gat", "shop has no 'gat'"),
        ("shop:number", "shop:number is a int, not an oncegate.Gate"),
        ("empty:gate", "empty:gate has no handlers"),
    ],
)
@pytest.mark.parametrize("command", ["worker", "reconcile"])
def test_a_wrong_app_is_one_clear_line(
    shop: Path, call: Callable[..., Ended], command: str, app: str, complaint: str
) -> None:
    """Exit code 2, and nothing was done."""
    ended = call(command, "--app", app)
    assert ended.code == 2
    assert complaint in ended.complaint


def test_a_program_and_an_address_exclude_each_other(shop: Path, call: Callable[..., Ended]) -> None:
    """The gate knows its own ledger."""
    for command in ("reconcile", "worker"):
        ended = call(command, "--app", "shop:gate", "--url", "sqlite:///x.db")
        assert "exclude each other" in ended.complaint


@pytest.mark.parametrize("option", ["--reconcile-every", "--prune-every", "--grace"])
def test_a_wrong_interval_is_one_clear_line(shop: Path, call: Callable[..., Ended], option: str) -> None:
    """Before anything is started."""
    assert call("worker", "--app", "shop:gate", option, "soon").code == 2


@pytest.mark.slow
def test_a_killed_programs_event_is_recovered_by_the_worker(
    shop: Path, worker: Callable[..., Started], address: dict[str, str]
) -> None:
    """Killed after its effect: one slot, one outcome, and a line about it (A6)."""
    die(shop, "MSKU7", **address)
    process = worker("--app", "shop:gate", "--json", **address)
    (line,) = read_until(process.stdout, "recon")
    told = json.loads(line)
    assert (told["job"], told["surface"], told["became"]) == ("reconciler", "bookings", "finished")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=DEADLINE_SECONDS)
    assert (process.returncode, len(list(shop.glob("slot-MSKU7-*")))) == (0, 1)


@pytest.mark.slow
def test_sigterm_lets_what_is_under_way_end(
    shop: Path, worker: Callable[..., Started], address: dict[str, str]
) -> None:
    """The handler ends after the signal, and its outcome is on record before the process ends."""
    die(shop, "", "slow", **address)
    process = worker("--app", "slow:gate", **address)
    read_until(process.stdout, "running")
    process.send_signal(signal.SIGTERM)
    _, talk = process.communicate(timeout=DEADLINE_SECONDS)
    assert (process.returncode, talk.splitlines()[-2:]) == (0, ["stopping", "stopped"])
    with open_store(address["ONCEGATE_URL"].replace("///", f"///{shop}/")).look() as session:
        assert session.counts()[State.COMMITTED] == 1


@pytest.mark.slow
def test_the_worker_says_what_it_does_and_what_it_leaves_out(worker: Callable[..., Started]) -> None:
    """One line a job, with the reason where it does not run."""
    process = worker("--app", "shop:gate", "--without", "scans")
    first, *lines, _ = (line.rstrip() for line in read_until(process.stderr, "started"))
    assert first.startswith("worker at sqlite:///")
    assert first.endswith(" for bookings")
    told = dict(line.split(": ", 1) for line in lines)
    assert list(told) == list(KINDS)
    assert told["recovery"] == DOES["recovery"]
    assert told["scans"] == "left out: not chosen"
    assert told["accepted"] == "left out: no surface accepts events; register one with mode='accept'"
    assert told["deliveries"].startswith("waits: there are no endpoints")


@pytest.mark.slow
def test_the_worker_stops_within_its_grace_even_if_a_handler_hangs(
    shop: Path, worker: Callable[..., Started]
) -> None:
    """The lease expires, and the event is recovered later."""
    die(shop, "hang")
    process = worker("--app", "shop:gate", "--grace", "100ms")
    read_until(process.stdout, "hanging")
    process.send_signal(signal.SIGTERM)
    _, talk = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode == 0
    assert "is recovered when its lease expires" in talk


def test_once_runs_every_job_that_is_chosen_and_ends(shop: Path, call: Callable[..., Ended]) -> None:
    """For a timer of the system instead of a process that stays."""
    done = call("worker", "--app", "shop:gate", "--once", "--only", "recovery, deliveries", "--json")
    recovered, delivered = map(json.loads, done.out.splitlines())
    assert (done.code, recovered["became"]) == (0, "finished")
    assert delivered == {"job": "deliveries", "delivered": 0, "failed": 0, "next_due_ms": None}
    assert done.err.splitlines()[-1] == "done"


def test_accepted_events_are_run_by_the_worker(shop: Path, call: Callable[..., Ended]) -> None:
    """The handler of an accepting surface runs in the worker."""
    with Gate("sqlite:///oncegate.db") as gate:
        gate.handler("orders", key="{id}", mode="accept")(lambda event, once: None)
        gate.admit_sync("orders", {"id": "o-1"})
    done = call("worker", "--app", "later:gate", "--once", "--only", "accepted")
    assert done.out.splitlines() == ["took o-1", "accepted: delivered 1, failed 0"]


def test_without_a_program_the_worker_does_what_needs_no_handler(
    shop: Path, call: Callable[..., Ended]
) -> None:
    """Recovery is left out with the next step; the feed is kept as long as only its service knows."""
    done = call("worker", "--once")
    assert done.code == 0
    assert "recovery: left out: it needs the handlers; give the program with --app" in done.err
    listed = call("reconcile", "--once")
    assert "in_flight" in listed.out


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--only", "recovery,sweeping"), "there is no job 'sweeping'; jobs are recovery, pruning"),
        (("--only", "recovery", "--without", "scans"), "not both"),
        (("--without", ",".join(KINDS)), "no job is left to run"),
        (("--only", "accepted"), "the job accepted cannot run: no surface accepts events"),
    ],
)
def test_a_wrong_choice_of_jobs_is_one_clear_line(
    shop: Path, call: Callable[..., Ended], words: tuple[str, ...], complaint: str
) -> None:
    """Exit code 2, and nothing was done."""
    ended = call("worker", "--app", "shop:gate", *words)
    assert (ended.code, complaint in ended.complaint) == (2, True)


def test_recovery_without_a_program_is_refused(shop: Path, call: Callable[..., Ended]) -> None:
    """Only the handlers can finish an event."""
    assert "give the program with --app" in call("worker", "--only", "recovery").complaint


def test_once_ends_with_code_3_where_the_ledger_cannot_be_reached(call: Callable[..., Ended]) -> None:
    """A timer learns of it; a worker that stays tries again."""
    assert call("worker", "--once", "--url", "sqlite:////no/such/folder/l.db").code == 3


@pytest.mark.parametrize("app", [(), ("--app", "shop:gate")])
def test_reconcile_tells_of_running_leases(
    shop: Path, call: Callable[..., Ended], app: tuple[str, ...]
) -> None:
    """While a dead worker's lease runs nothing is stranded yet, and it says when to look again."""
    call("reconcile", "--once", "--app", "shop:gate")
    store = open_store("sqlite:///oncegate.db")
    with closing(store.connect()) as session, session.unit():
        for number, seconds in enumerate((30, 90)):
            lease = Reservation(
                bytes([number]) * 24,
                "",
                "bookings",
                "m",
                b"f" * 16,
                b"{}",
                1,
                1000 * seconds,
                8,
                number + 1,
            )
            session.reserve([lease])
    told = call("reconcile", "--once", *app)
    assert (told.code, told.out) == (0, "")
    assert told.err == (
        "nothing is stranded yet: 2 entries are in flight with a running lease;"
        " if a worker died, its entries can be recovered in 30 to 90 s\n"
    )
