"""The checkers of traffic: one small function for each promise, over the evidence of one run."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Final

from lab.simulator.checkers.violation import Violation
from lab.simulator.traffic.evidence import TrafficEvidence
from oncegate.model.states import State
from oncegate.store import LogKind

_LANE: Final = "FROM oncegate_delivery d JOIN oncegate_lane l ON l.id = d.lane"
_DONE: Final = (
    f"SELECT d.event, a.delivery IS NOT NULL, x.lane IS NOT NULL {_LANE}"
    " LEFT JOIN oncegate_ack a ON a.delivery = d.id"
    " LEFT JOIN oncegate_dead_letter x ON x.lane = d.lane AND x.seq = d.seq"
)
_RULED: Final = (LogKind.APPROVED, LogKind.REJECTED)


def lanes_have_no_gap(evidence: TrafficEvidence) -> Iterator[str]:
    """Every event that was emitted is in its lane once; seqs count from 1."""
    lanes: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for key, seq, event in evidence.rows(f"SELECT l.key, d.seq, d.event {_LANE} ORDER BY d.seq"):
        lanes[key].append((seq, event))
    for key in sorted({*evidence.emitted.values(), *lanes}):
        seqs = [seq for seq, _ in lanes[key]]
        if seqs != list(range(1, len(seqs) + 1)):
            yield f"lane {key} has the seqs {seqs}"
        wanted = sorted(event for event, its_key in evidence.emitted.items() if its_key == key)
        if sorted(event for _, event in lanes[key]) != wanted:
            yield f"lane {key} holds {lanes[key]}, emitted were {wanted}"


def first_arrivals_are_in_order(evidence: TrafficEvidence) -> Iterator[str]:
    """A receiver first sees the events of a key in the order of their seqs, none left out."""
    seen: dict[str, list[int]] = defaultdict(list)
    for arrival in evidence.arrived:
        if arrival.seq not in seen[arrival.key]:
            seen[arrival.key].append(arrival.seq)
    for key, seqs in seen.items():
        if seqs != list(range(1, len(seqs) + 1)):
            yield f"the receiver saw {seqs} of {key}"


def nobody_overtakes(evidence: TrafficEvidence) -> Iterator[str]:
    """No event reaches its receiver before all ahead of it are on record as done."""
    for arrival in evidence.arrived:
        if arrival.seq > arrival.head_seq:
            yield f"{arrival.key} {arrival.seq} arrived while {arrival.head_seq} was the head"


def one_in_flight(evidence: TrafficEvidence) -> Iterator[str]:
    """A request leaves only under the lane's own lease: nobody else has the lane then."""
    for sent in evidence.sent:
        if not sent.is_leased or sent.fence != sent.lane_fence:
            yield f"{sent.key} {sent.seq} was sent under fence {sent.fence}, the lane has {sent.lane_fence}"


def deliveries_end_as_meant(evidence: TrafficEvidence) -> Iterator[str]:
    """What a receiver takes is acknowledged once, what it never takes is a dead letter."""
    arrived = {arrival.event_id for arrival in evidence.arrived}
    for event, is_acked, is_dead in evidence.rows(_DONE):
        if (bool(is_acked), bool(is_dead)) != (event not in evidence.dead, event in evidence.dead):
            yield f"{event}: acknowledged {bool(is_acked)}, dead letter {bool(is_dead)}"
        if event not in arrived:
            yield f"{event} is done and never arrived"


def readers_see_all_once_in_order(evidence: TrafficEvidence) -> Iterator[str]:
    """Whoever keeps a cursor gets every published event once, in the feed's order."""
    feed = evidence.rows("SELECT event_id, key, seq FROM oncegate_feed ORDER BY position")
    if evidence.by_cursor.events != feed:
        yield f"the feed has {feed}, the reader by cursor got {evidence.by_cursor.events}"
    firsts = list(dict.fromkeys(evidence.by_ack.events))
    if firsts != feed:
        yield f"the feed has {feed}, the reader by acknowledgement first got {firsts}"


def feed_has_all_once(evidence: TrafficEvidence) -> Iterator[str]:
    """What was published is in the feed once, with seqs of its key that count from 1."""
    rows = evidence.rows("SELECT event_id, key, seq FROM oncegate_feed ORDER BY position")
    if sorted(event for event, _, _ in rows) != sorted(evidence.published):
        yield f"published were {sorted(evidence.published)}, the feed has {rows}"
    counts: Counter[str] = Counter()
    for event, key, seq in rows:
        counts[key] += 1
        if seq != counts[key]:
            yield f"{event} has seq {seq} of {key}, not {counts[key]}"


def rulings_count_once(evidence: TrafficEvidence) -> Iterator[str]:
    """However often it is clicked, one decision counts; only whose it is may be told that it is done."""
    for entry in sorted({told.entry for told in evidence.told}):
        records = evidence.rows(
            "SELECT kind, n.text FROM oncegate_log JOIN oncegate_name n ON n.id = actor"
            " WHERE entry = ? AND kind IN (?, ?)",
            entry,
            *_RULED,
        )
        if len(records) != 1:
            yield f"entry {entry} was decided {len(records)} times: {records}"
            continue
        kind, actor = records[0]
        ((state,),) = evidence.rows("SELECT state FROM oncegate_entry WHERE id = ?", entry)
        if state != (State.RETRYABLE if kind == LogKind.APPROVED else State.FAILED):
            yield f"entry {entry} was decided ({LogKind(kind).name}) and is {State(state).label}"
        yield from _wrongly_told(evidence, entry, str(actor), kind == LogKind.APPROVED)


def _wrongly_told(evidence: TrafficEvidence, entry: int, actor: str, approved: bool) -> Iterator[str]:
    done = [told for told in evidence.told if told.entry == entry and told.answer == "done"]
    if len(done) > 1:
        yield f"{len(done)} clicks on entry {entry} were told that they counted"
    for told in done:
        if (told.operator, told.approves) != (actor, approved):
            yield f"{told.operator} was told that entry {entry} is decided so; it was {actor}"


def all_settles(evidence: TrafficEvidence) -> Iterator[str]:
    """Without faults everything comes to its end."""
    yield from evidence.unsettled


CHECKERS: Final[tuple[tuple[str, Callable[[TrafficEvidence], Iterator[str]]], ...]] = (
    ("I10", lanes_have_no_gap),
    ("I10", first_arrivals_are_in_order),
    ("I10", nobody_overtakes),
    ("I10", one_in_flight),
    ("I2", deliveries_end_as_meant),
    ("I12", readers_see_all_once_in_order),
    ("I12", feed_has_all_once),
    ("I20", rulings_count_once),
    ("I2", all_settles),
)


def check_traffic(evidence: TrafficEvidence) -> list[Violation]:
    """Everything that is wrong with a run."""
    return [
        Violation(invariant, checker.__name__, text)
        for invariant, checker in CHECKERS
        for text in checker(evidence)
    ]
