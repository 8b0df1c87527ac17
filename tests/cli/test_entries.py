"""`oncegate entries`: what is listed, what is shown, what stays hidden, and that nothing changes."""

from __future__ import annotations

import json
import shlex
import sqlite3

import pytest

from oncegate import open_store
from oncegate.cli.entries import CANDIDATES_MAX
from oncegate.model.states import State
from tests.cli.conftest import contents, reservation


def _listed(ended) -> list[dict]:
    assert ended.code == 0
    return [json.loads(line) for line in ended.out.splitlines()]


@pytest.mark.slow
def test_list_shows_a_table_newest_first(script, ledger, tmp_path):
    """The table has what a person looks for, and reading leaves the ledger as it was."""
    before = contents(tmp_path)
    ended = script("entries", "list")
    assert ended.code == 0
    header, *rows = ended.out.splitlines()
    assert header.split()[:6] == ["ID", "KEY", "SURFACE", "TENANT", "LABEL", "STATE"]
    assert [int(row.split()[0]) for row in rows] == sorted(
        (int(row.split()[0]) for row in rows), reverse=True
    )
    assert "key_input: missing: id: the event has no such field" in ended.out
    assert contents(tmp_path) == before


@pytest.mark.slow
def test_quarantined_events_are_visible_with_their_reason(script, ledger):
    """The filter that operators use most shows why each event was not run."""
    ended = script("entries", "list", "--state", "quarantined")
    order, booking = ended.out.splitlines()[1:]
    assert "orders" in order
    assert "key_input: missing" in order
    assert "conflict: other content under the key" in booking


def test_hostile_text_never_reaches_the_terminal(call, ledger):
    """A label full of escapes is shown, not obeyed: in the table, in the details and as JSON."""
    for words in (("list",), ("list", "--json"), ("show", "aa02"), ("show", "aa02", "--payload", "--json")):
        ended = call("entries", *words)
        assert ended.code == 0
        assert all(line.isprintable() for line in ended.out.splitlines())
        assert "u202e" in ended.out


@pytest.mark.parametrize(
    ("words", "labels"),
    [
        (("--state", "failed"), ["closed"]),
        (("--state", "failed", "--state", "UNKNOWN"), ["closed", "doubt"]),
        (("--state", "in-flight", "--label", "strand"), ["stranded"]),
        (("--surface", "orders"), ["id: missing", "o-1"]),
        (("--tenant", "acme", "--state", "committed"), ["o-1"]),
        (("--key", "AA01"), ["stranded"]),
        (("--surface", "bookings", "--limit", "1", "--before", "3"), ["two"]),
    ],
)
def test_filters_are_combined(call, ledger, words, labels):
    """Every filter narrows the list."""
    assert [entry["label"] for entry in _listed(call("entries", "list", "--json", *words))] == labels


def test_pages_follow_each_other_without_gaps(call, ledger):
    """The command printed for the next page leads through everything once."""
    everything = [entry["id"] for entry in _listed(call("entries", "list", "--json"))]
    words, seen = ["entries", "list", "--json", "--limit", "3"], []
    while True:
        ended = call(*words)
        seen += [entry["id"] for entry in _listed(ended)]
        if not ended.err:
            break
        words = shlex.split(ended.err.partition("next page: oncegate ")[2])
    assert seen == everything


def test_next_page_keeps_every_filter(call, ledger):
    """What was asked for stays asked for, quoted for the shell."""
    words = [
        "--url",
        "sqlite:///oncegate.db",
        "--surface",
        "bookings",
        "--label",
        "o",
        "--state",
        "committed",
    ]
    ended = call("entries", "list", *words, "--limit", "1")
    assert f"oncegate entries list {shlex.join(words)} --limit 1 --before" in ended.err


@pytest.mark.slow
def test_unknown_surface_names_the_known_ones(script, ledger):
    """A misspelt surface must not look like a surface without trouble."""
    ended = script("entries", "list", "--surface", "bokings", "--state", "held")
    assert ended.code == 2
    assert ended.complaint == (
        "oncegate: no entry has the surface 'bokings'; surfaces are bookings, by hand, orders"
    )


@pytest.mark.parametrize("words", [("--surface", "orders", "--state", "held"), ("--tenant", "nobody")])
def test_list_without_entries_is_an_answer(call, ledger, words):
    """Nothing found is code zero, and said on standard error only."""
    ended = call("entries", "list", *words)
    assert (ended.code, ended.out, ended.err) == (0, "", "no entry fits\n")


def test_new_ledger_has_no_entries_and_no_surfaces(call):
    """Before the first event no surface can be wrong."""
    call("migrate")
    for words in ((), ("--surface", "bookings"), ("--json",)):
        ended = call("entries", "list", *words)
        assert (ended.code, ended.out, ended.err) == (0, "", "the ledger has no entries yet\n")


@pytest.mark.slow
def test_show_tells_the_whole_story_without_the_payload(script, ledger):
    """Facts, history, steps and outcome are there; the event itself is not."""
    ended = script("entries", "show", "1")
    assert ended.code == 0
    for said in (
        "done; every later arrival gets the recorded outcome",
        "first received",
        "another content arrived under this key and was refused",
        "claim_slot  done   terminal    slot-one",
        "effect started",
        '"price": 12345678901234567890',
        "shown with --payload",
    ):
        assert said in ended.out
    assert "tulip" not in ended.out


def test_payload_is_shown_when_asked_for(call, ledger):
    """--payload adds the event, and the results of steps that are on record."""
    assert '"secret": "tulip"' in call("entries", "show", "1", "--payload").out
    in_doubt = _listed(call("entries", "list", "--state", "unknown", "--json"))[0]
    shown = call("entries", "show", in_doubt["key"], "--payload").out
    assert "result of claim_slot" in shown
    assert "started" in shown


def test_json_of_one_entry_hides_the_payload_too(call, ledger):
    """Programs get the same entry, and the same discretion."""
    (hidden,) = _listed(call("entries", "show", "1", "--json"))
    assert hidden["history"][0]["what"] == "committed"
    assert hidden["outcome"]["value"]["slot"] == "slot-one"
    assert hidden["payload_bytes"] > 0
    assert "payload" not in hidden
    (open_one,) = _listed(call("entries", "show", "1", "--json", "--payload"))
    assert open_one["payload"]["secret"] == "tulip"


@pytest.mark.parametrize("state", list(State))
def test_every_state_is_explained(call, ledger, state):
    """Whatever state an entry is in, showing it says what that means."""
    if state is State.HELD:
        _set_state(ledger, 1, state)
    entries = _listed(call("entries", "list", "--json", "--state", state.label))
    ended = call("entries", "show", str(entries[0]["id"]))
    assert ended.code == 0
    assert state.label in ended.out


def _set_state(ledger, entry: int, state: State) -> None:
    connection = sqlite3.connect(ledger)
    with connection:
        connection.execute("UPDATE oncegate_entry SET state = ? WHERE id = ?", (state.value, entry))
    connection.close()


def test_stranded_claims_are_told_from_running_ones(call, ledger):
    """A lapsed lease is shown as what it is, also after a restart of the machine."""
    assert "its worker's lease expired" in call("entries", "show", "aa01").out
    assert "a worker holds the key" in call("entries", "show", "aa02").out
    connection = sqlite3.connect(ledger)
    with connection:
        connection.execute("UPDATE oncegate_meta SET value = 'an earlier boot' WHERE name = 'boot'")
    connection.close()
    assert "its worker's lease expired" in call("entries", "show", "aa02").out


def test_key_as_a_downstream_saw_it_finds_the_entry(call, ledger):
    """KEY:step, copied from a downstream's log, is understood."""
    (first,) = _listed(call("entries", "show", "1", "--json"))
    assert f"key          {first['key']}" in call("entries", "show", f"{first['key']}:claim_slot").out


@pytest.mark.slow
def test_ambiguous_prefix_lists_the_candidates(script, ledger):
    """Several keys that begin alike are shown to choose from."""
    ended = script("entries", "show", "aa")
    assert (ended.code, ended.out) == (1, "")
    assert "aa0100000000" in ended.err
    assert "aa0200000000" in ended.err
    last = ended.err.splitlines()[-1]
    assert last == "oncegate: several keys begin with aa; give more digits, or an id"


def test_many_candidates_are_not_all_listed(call, ledger):
    """A short prefix of a large ledger does not flood the screen."""
    session = open_store(f"sqlite:///{ledger}").connect()
    with session.unit():
        session.reserve([reservation(b"\xcc" + bytes([number]), "alike", 0) for number in range(20)])
    session.close()
    ended = call("entries", "show", "cc")
    assert len(ended.err.splitlines()) == CANDIDATES_MAX + 2
    assert "the newest 10 are shown" in ended.err


@pytest.mark.parametrize("wanted", ["999", "9" * 40, "0", "fffffff0"])
def test_unknown_entry_is_one_line_and_code_one(call, ledger, wanted):
    """What is not there is said plainly."""
    ended = call("entries", "show", wanted)
    assert ended.code == 1
    assert "no entry has" in ended.complaint


@pytest.mark.parametrize("wanted", ["", "xyz", "12 34", "a" * 49])
def test_what_cannot_be_a_key_or_an_id_is_refused(call, ledger, wanted):
    """A label or a typo is told from an entry that does not exist."""
    ended = call("entries", "show", wanted)
    assert ended.code == 2
    assert "is not the beginning of a key" in ended.complaint
