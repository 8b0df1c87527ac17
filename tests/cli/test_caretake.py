"""`oncegate caretake` and `oncegate reconcile`: with a program's own handlers, and without."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from oncegate.testing.waiting import DEADLINE_SECONDS
from tests.cli.conftest import Ended, clean_environment, contents

PROGRAM = """
import os, sys
from oncegate import Gate

gate = Gate()
ect = gate.downstream("ect", honours_key="7d")
number = 5


def claim(container, idempotency_key):
    return {"id": f"slot-{container}"}


@gate.handler("bookings", key="{id}", lease="1ms")
def book(event, once):
    slot = once.effect(ect, claim, event["id"])
    if __name__ == "__main__":
        os._exit(9)
    if event["id"] == "hang":
        print("hanging", flush=True)
        while True:
            pass
    return slot


if __name__ == "__main__":
    gate.admit_sync("bookings", {"id": sys.argv[1]})
"""
BROKEN = "import no_such_thing_at_all"
EMPTY = "from oncegate import Gate\ngate = Gate()"
RAISING = "raise RuntimeError('no settings')"


@pytest.fixture(scope="session")
def template_shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a program, and a ledger in which one of its processes died; made once."""
    folder = tmp_path_factory.mktemp("shop")
    for name, text in {"shop": PROGRAM, "broken": BROKEN, "raising": RAISING, "empty": EMPTY}.items():
        (folder / f"{name}.py").write_text(text)
    die(folder, "MSKU1")
    return folder


@pytest.fixture
def shop(template_shop: Path, tmp_path: Path) -> Path:
    """A copy of the template, as the test's own folder."""
    shutil.copytree(template_shop, tmp_path, dirs_exist_ok=True)
    return tmp_path


def die(folder: Path, container: str) -> None:
    """A process that dies after its slot was sold."""
    done = subprocess.run(
        [sys.executable, "shop.py", container],
        cwd=folder,
        env=environment(),
        check=False,
        timeout=DEADLINE_SECONDS,
    )
    assert done.returncode == 9


def environment() -> dict[str, str]:
    return clean_environment(PYTHONPATH=str(Path(__file__).parents[2] / "src"), PYTHONUNBUFFERED="1")


@pytest.fixture
def caretaker(shop: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts `oncegate caretake` as a process of its own; whatever is left is ended afterwards."""
    started: list[subprocess.Popen[str]] = []

    def start(*words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "oncegate", "caretake", *words]
        process = subprocess.Popen(
            command, cwd=shop, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate(timeout=DEADLINE_SECONDS)


@pytest.fixture(autouse=True)
def _forget_programs() -> Iterator[None]:
    """Each test's program is a module of its own, whatever it is called, found in its own folder."""
    path = list(sys.path)
    yield
    sys.path[:] = path
    for name in ("shop", "broken", "raising", "empty"):
        sys.modules.pop(name, None)


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
@pytest.mark.parametrize("command", ["caretake", "reconcile"])
def test_a_wrong_app_is_one_clear_line(
    shop: Path, call: Callable[..., Ended], command: str, app: str, complaint: str
) -> None:
    """Exit code 2, and nothing was done."""
    ended = call(command, "--app", app)
    assert ended.code == 2
    assert complaint in ended.complaint


def test_a_program_and_an_address_exclude_each_other(shop: Path, call: Callable[..., Ended]) -> None:
    """The gate knows its own ledger."""
    assert (
        "exclude each other" in call("reconcile", "--app", "shop:gate", "--url", "sqlite:///x.db").complaint
    )


@pytest.mark.parametrize("option", ["--reconcile-every", "--prune-every", "--grace"])
def test_a_wrong_interval_is_one_clear_line(shop: Path, call: Callable[..., Ended], option: str) -> None:
    """Before anything is started."""
    assert call("caretake", "--app", "shop:gate", option, "soon").code == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_caretake_finishes_what_is_stranded_until_told_to_stop(
    caretaker: Callable[..., subprocess.Popen[str]], number: signal.Signals
) -> None:
    """A line for each thing done; a signal ends it with code 0."""
    process = caretaker("--app", "shop:gate", "--reconcile-every", "50ms", "--json")
    assert process.stdout is not None
    told = json.loads(process.stdout.readline())
    assert (told["caretaker"], told["surface"], told["became"]) == ("reconciler", "bookings", "finished")
    process.send_signal(number)
    _, talk = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode == 0
    assert talk.splitlines()[0].startswith("looking after bookings at sqlite:///")
    assert talk.splitlines()[-1] == "stopped"


def test_caretake_stops_within_its_grace_even_if_a_handler_hangs(
    shop: Path, caretaker: Callable[..., subprocess.Popen[str]]
) -> None:
    """The key's lease lapses, and somebody else looks into it."""
    die(shop, "hang")
    process = caretaker("--app", "shop:gate", "--reconcile-every", "50ms", "--grace", "100ms")
    assert process.stdout is not None
    while process.stdout.readline() != "hanging\n":
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    _, talk = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode == 0
    assert "will be looked into" in talk
