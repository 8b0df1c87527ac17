"""`oncegate held` and `oncegate quarantine`: what waits is shown, explained, and settled."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
from pathlib import Path

import pytest

from oncegate import Gate, Verdict
from oncegate.clock import from_wall_ms
from oncegate.review import bulk

WHY = ("--reason", "looked into it")


@pytest.fixture
def waiting(tmp_path: Path) -> Path:
    """A ledger with one doubtful mail, one skewed event, one without an id, and payouts to be approved."""
    path = tmp_path / "oncegate.db"
    with Gate(f"sqlite:///{path}") as gate:
        mail = gate.downstream("mail")

        def send():
            raise TimeoutError("no answer")

        @gate.handler("mails", key="{id}", occurred_at="at")
        def post(event, once):
            return once.effect(mail, send)

        @gate.handler("letters", key="{id}")
        def letter(event, once):
            return once.effect(mail, send)

        @gate.handler("payouts", key="{id}", tenant="{to}", approve_first=True, decide_within="4h")
        def pay(event):
            return "paid"

        with pytest.raises(TimeoutError):
            gate.admit_sync("letters", {"id": 1})
        gate.admit_sync("mails", {"id": 1, "at": "2001-01-01T00:00:00"})
        gate.admit_sync("mails", {"secret": "tulip"})
        for number in range(7):
            gate.admit_sync("payouts", {"id": number, "to": "a" if number else "b"})
    return path


def states(path: Path) -> dict[int, str]:
    """Every entry's state."""
    connection = sqlite3.connect(path)
    found = connection.execute("SELECT id, state FROM oncegate_entries").fetchall()
    connection.close()
    return dict(found)


@pytest.mark.slow
def test_list_shows_what_waits_and_filters_it(call, waiting):
    """Held and doubtful ones at one desk, quarantined ones at the other."""
    shown = [json.loads(line) for line in call("held", "list", "--json").out.splitlines()]
    assert [entry["state"] for entry in shown] == ["held"] * 7 + ["unknown"]
    assert len(call("quarantine", "list").out.splitlines()) == 3
    for words, count in (
        (("held", "list", "--surface", "payouts", "--tenant", "b"), 1),
        (("held", "list", "--reason-contains", "within 4h"), 7),
        (("quarantine", "list", "--reason-contains", "bad_time"), 1),
        (("held", "list", "--older-than", "1h"), 0),
        (("held", "list", "--limit", "3"), 3),
        (("held", "list", "--before", "5"), 2),
    ):
        ended = call(*words, "--json")
        assert (ended.code, len(ended.out.splitlines())) == (0, count), words
    assert "nothing waits that fits" in call("held", "list", "--older-than", "1h").err
    assert call("held", "list", "--surface", "nope").code == 2
    assert call("held", "list", "--older-than", "soon").code == 2


def test_show_says_why_it_is_here_and_what_each_word_does(call, waiting):
    """Who put it here and when, what is in doubt, what each word does; the payload only on demand."""
    doubtful = call("held", "show", "1").out
    assert re.search(r"waits since .*Z, put here by gate: TimeoutError: no answer", doubtful)
    assert "step send at mail may or may not have happened" in doubtful
    assert "approve: say what happened with --step send=" in doubtful
    assert "reject: " in doubtful
    nameless = call("quarantine", "show", "3")
    assert "known by its content alone" in nameless.out
    assert "tulip" not in nameless.out
    assert "tulip" in call("quarantine", "show", "3", "--payload").out
    told = json.loads(call("quarantine", "show", "2", "--json").out)
    assert set(told["choices"]) == {"release", "discard"}


def test_show_leads_to_the_right_desk(call, waiting):
    """What does not wait here is named, with the command that shows it."""
    assert "see: oncegate quarantine show 2" in call("held", "show", "2").complaint
    assert "see: oncegate held show 1" in call("quarantine", "show", "1").complaint
    call("held", "reject", "1", *WHY)
    assert "entry 1 is failed, it does not wait here; see: oncegate entries show 1" in call(
        "held", "show", "1"
    ).complaint  # fmt: skip


def test_a_mistyped_id_is_nobodys(call, waiting):
    """Not that of the entry whose key happens to begin with the same digits."""
    connection = sqlite3.connect(waiting)
    connection.execute("UPDATE oncegate_entry SET key = CAST(x'91' || substr(key, 2) AS BLOB) WHERE id = 5")
    connection.commit()
    connection.close()

    for words in (("held", "approve", "91", *WHY), ("entries", "show", "91")):
        ended = call(*words)
        assert ended.code != 0
        assert "no entry has the id 91" in ended.complaint
    assert states(waiting)[5] == "held"


def test_a_word_is_heard_once_and_stands_in_the_history(call, waiting):
    """Said twice, or by a second operator, it changes nothing and names the first."""
    ended = call("held", "approve", "4", "--as", "Ada", "--reason", "seen the invoice", "--fence", "4")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("entry 4 approved by Ada: seen the invoice")
    for verb in ("approve", "reject"):
        again = call("held", verb, "4", *WHY)
        assert again.code == 1
        assert "entry 4 is retryable now: Ada approved it at" in again.complaint
        assert "nothing was changed" in again.complaint
    assert "approved: may run" in call("entries", "show", "4").out
    assert states(waiting)[4] == "retryable"


def test_the_login_name_is_used_where_nobody_says_who(call, waiting, monkeypatch):
    """--as is for those who speak for themselves on a shared account."""
    monkeypatch.setenv("LOGNAME", "grace")
    assert json.loads(call("quarantine", "discard", "3", *WHY, "--json").out)["reason"] == (
        "discarded by grace: looked into it"
    )


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("held", "approve", "1"), 2, "required: --reason"),
        (("held", "approve", "1", "--reason", " "), 2, "say why"),
        (("held", "approve", "1", *WHY), 1, "--step send=did-not-happen"),
        (("held", "approve", "1", *WHY, "--step", "send"), 2, "write NAME="),
        (("held", "approve", "1", *WHY, "--step", "send=maybe"), 2, "cannot be read"),
        (
            ("held", "approve", "1", *WHY, "--step", "x=happened"),
            1,
            "not in doubt here; steps in doubt: send",
        ),
        (("held", "approve", "1", *WHY, "--result", "send=1"), 2, "needs --step send=happened"),
        (("held", "approve", "1", *WHY, "--step", "send=happened", "--result", "send={"), 2, "not JSON"),
        (("held", "approve", "1", *WHY, "--as", ""), 2, "person's name"),
        (("held", "approve", "1", *WHY, "--fence", "77"), 1, "entry 1 is unknown now"),
        (("held", "approve", "2", *WHY), 1, "entry 2 is quarantined now"),
        (("held", "approve", "99", *WHY), 1, "no entry has the id 99"),
        (("held", "approve", *WHY), 2, "say which"),
        (("held", "approve", "1", *WHY, "--surface", "mails"), 2, "not both"),
        (("held", "approve", *WHY, "--all", "--fence", "3"), 2, "--fence is for one entry"),
        (("quarantine", "release", "4", *WHY), 1, "entry 4 is held now"),
    ],
)
def test_mistakes_change_nothing_and_are_one_clear_line(call, waiting, words, code, message):
    """Clear message, no effect."""
    before = states(waiting)
    ended = call(*words)
    assert ended.code == code
    assert message in ended.complaint
    assert states(waiting) == before


def test_a_step_that_happened_is_recorded_with_its_resource(call, waiting):
    """What the person found out stands in the log and with the step."""
    words = ("--step", "send=happened:M-1", "--result", 'send={"id":"M-1","at":3}')
    assert call("held", "approve", "1", *WHY, *words).code == 0
    told = json.loads(call("entries", "show", "1", "--json", "--payload").out)
    (step,) = told["steps"]
    assert step.pop("started_at") == told["effect_starts"][0]["at"]
    assert [step] == [
        {
            "name": "send",
            "state": "done",
            "downstream": "mail",
            "resource": "M-1",
            "result": {"id": "M-1", "at": 3},
        }
    ]
    assert told["history"][-1]["note"] == "looked into it; send happened (M-1)"


def test_a_plan_for_many_is_shown_confirmed_and_carried_out(call, waiting, monkeypatch):
    """Count and sample first; only the count typed back, or --yes, carries it out."""
    many = ("held", "reject", "--surface", "payouts", "--tenant", "a", *WHY)
    plan = call(*many, "--dry-run")
    assert (plan.code, plan.out) == (0, "")
    assert "6 to be rejected" in plan.err
    assert "there is no terminal to ask on" in call(*many).err
    monkeypatch.setattr("sys.stdin", Terminal("5\n"))
    assert call(*many).code == 1
    assert list(states(waiting).values()).count("held") == 7
    monkeypatch.setattr("sys.stdin", Terminal("6\n"))
    ended = call(*many)
    assert (ended.code, ended.out) == (0, "6 rejected\n")
    assert list(states(waiting).values()).count("held") == 1
    assert "nothing to do" in call(*many, "--yes").err


class Terminal:
    """Somebody at the keyboard."""

    def __init__(self, typed: str) -> None:
        self._typed = typed

    def isatty(self) -> bool:
        return True

    def readline(self) -> str:
        return self._typed


def test_an_approval_for_many_leaves_what_is_in_doubt_and_says_so(call, waiting):
    """One of eight needs an answer about its step: seven go, one stays, and the code says no."""
    ended = call("held", "approve", "--all", "--yes", "--json", *WHY)
    plan, result = (json.loads(line) for line in ended.out.splitlines())
    assert (ended.code, plan["plan"]["entries"]) == (1, 8)
    assert (result["result"]["done"], result["result"]["refused"]) == (7, 1)
    assert "step send at mail" in result["result"]["refusals"][0]
    assert states(waiting)[1] == "unknown"


def test_ctrl_c_stops_between_batches_and_tells_what_was_done(call, waiting, monkeypatch):
    """What is done stays done; the rest waits as before."""
    monkeypatch.setattr(bulk, "BATCH_ENTRIES", 2)
    advance = bulk.Job._advance

    def interrupted(job, batch):
        advance(job, batch)
        if job.progress.done == 4:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(bulk.Job, "_advance", interrupted)
    ended = call("held", "reject", "--surface", "payouts", "--yes", *WHY)
    assert ended.code == 130
    assert ended.out == "4 rejected, 3 not looked at (cancelled)\n"
    assert list(states(waiting).values()).count("failed") == 4
    assert list(states(waiting).values()).count("held") == 3


def test_both_contents_of_one_key_are_shown_with_what_a_release_would_do(call, waiting):
    """The one that waits and the corrected one name each other; a release of both would run both."""
    with Gate(f"sqlite:///{waiting}") as gate:
        gate.handler("mails", key="{id}", occurred_at="at")(lambda event, once: None)
        now = from_wall_ms(gate.engine.clock.wall_ms()).isoformat()
        assert gate.admit_sync("mails", {"id": 1, "at": now}).verdict is Verdict.CONFLICT
    listed = call("quarantine", "list", "--reason-contains", "conflict: ", "--json")
    (kept,) = map(json.loads, listed.out.splitlines())
    shown = call("quarantine", "show", str(kept["id"]))
    first = re.search(
        r"under a key that entry (\d+) has with other content, which is quarantined", shown.out
    )
    assert first is not None
    assert f"Entry {first[1]} waits too: discard it, or both run" in shown.out
    told = json.loads(call("quarantine", "show", first[1], "--json").out)
    assert [entry["id"] for entry in told["same_key"]] == [kept["id"]]
    assert f"kept as entry {kept['id']} (quarantined)" in " ".join(told["remarks"])
