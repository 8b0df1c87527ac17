"""Makes a recording of what a ledger still holds: events by their payloads, repeats by their counts.

A ledger keeps the first content of a key, and of its repeats how many there were, of which class, and when
the first and the last came. So the moments between are spread evenly and marked `about`, and the other
content of a conflict is there only where it was kept for a person. A live recorder has all of it; this is
for arrivals that were not recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from oncegate.errors import ConfigError
from oncegate.gate.admission import Verdict
from oncegate.model.canonical import canonical_json
from oncegate.model.keys import Key
from oncegate.model.repeats import RepeatClass
from oncegate.model.states import State
from oncegate.model.surface import SurfaceRule
from oncegate.recorder.pseudonyms import Pseudonyms
from oncegate.recorder.recorder import NO_RULES, text_at
from oncegate.recorder.recording import ARRIVALS_MAX, AnswerLine, ArrivalLine, SurfaceLine
from oncegate.recorder.redaction import Redaction, Rules
from oncegate.recorder.writing import RecordingFile
from oncegate.store import Entry, EntryDetail, EntryFilter, Repeat, Session
from oncegate.store.conflicts import kept_beside, wanted_key

PAGE: Final = 500
FORGOTTEN: Final = "the ledger does not have it any more"
NO_JSON: Final = "what the ledger has of it is no JSON"
FIRST_ONLY: Final = "the ledger keeps the first content of a key only"
# Classes of arrivals of a known key. The others are about events of their own, which are listed anyway.
_VERDICTS: Final = {
    RepeatClass.EXPECTED_REPLAY: Verdict.REPLAY,
    RepeatClass.LATE_REPLAY: Verdict.REPLAY,
    RepeatClass.STALE_OFFSET: Verdict.REPLAY,
    RepeatClass.RACE: Verdict.BUSY,
    RepeatClass.ASKED_RETRY: Verdict.BUSY,
    RepeatClass.CONFLICT: Verdict.CONFLICT,
}
_PARKED: Final = {State.QUARANTINED: Verdict.QUARANTINE, State.HELD: Verdict.HOLD}


class ExportedArrival(Struct, frozen=True, order=True):
    """One arrival as the ledger knows it; `number` tells the repeats of an entry apart."""

    at_ms: int
    entry_id: int
    number: int
    kind: RepeatClass | None = None
    is_about: bool = False


def moments_of(session: Session, wanted: EntryFilter, limit: int) -> list[ExportedArrival]:
    """Every arrival that the ledger knows of, oldest first, of the newest `limit` entries."""
    found: list[ExportedArrival] = []
    for entry in _entries(session, wanted, limit):
        found.append(ExportedArrival(entry.received_at_ms, entry.entry_id, 0))
        for repeat in _untold(session, entry):
            if repeat.kind in _VERDICTS and len(found) + repeat.times > ARRIVALS_MAX:
                raise ConfigError(f"more than {ARRIVALS_MAX} arrivals; choose a surface or a shorter span")
            found += _repeated(repeat, len(found))
    return sorted(found)


def _untold(session: Session, entry: Entry) -> Iterator[Repeat]:
    """An entry's repeats, without the conflicts whose content is kept: those are listed by themselves."""
    for repeat in session.repeats(entry.entry_id):
        kept = kept_beside(session, Key(entry.key)) if repeat.kind is RepeatClass.CONFLICT else ()
        yield msgspec.structs.replace(repeat, times=max(0, repeat.times - len(kept)))


def _entries(session: Session, wanted: EntryFilter, limit: int) -> Iterator[Entry]:
    before: int | None = None
    while limit > 0:
        page = session.entries(wanted, before, min(PAGE, limit))
        yield from page
        if not page:
            return
        before, limit = page[-1].entry_id, limit - len(page)


def _repeated(repeat: Repeat, number: int) -> list[ExportedArrival]:
    if repeat.kind not in _VERDICTS:
        return []
    span, last = repeat.last_at_ms - repeat.first_at_ms, repeat.times - 1
    return [
        ExportedArrival(
            repeat.first_at_ms + (span * place // last if last else 0),
            repeat.entry_id,
            number + place,
            repeat.kind,
            0 < place < last,
        )
        for place in range(repeat.times)
    ]


class Exporter:
    """Writes what a ledger knows into a recording, with the rules applied."""

    def __init__(
        self, rules: Mapping[str, Rules], surface_rules: Mapping[str, SurfaceRule], names: Pseudonyms
    ) -> None:
        self._names = names
        self._redactions = {
            name: Redaction(one, names, surface_rules.get(name)) for name, one in rules.items()
        }

    def write(self, session: Session, moments: Sequence[ExportedArrival], file: RecordingFile) -> None:
        """Writes every moment as an arrival with its answer."""
        for moment in moments:
            detail = session.detail(moment.entry_id)
            if detail is None:  # forgotten between the list and now
                continue
            surface = detail.entry.surface
            redaction = self._redactions.get(surface)
            if surface not in file.surfaces:
                time = None if redaction is None else redaction.occurred_at
                file.begin_surface(SurfaceLine(surface, redaction is not None, time))
            number = file.add(self._line(detail, moment, redaction, file))
            if number:
                file.write(_answer(number, detail, moment))

    def _line(
        self, detail: EntryDetail, moment: ExportedArrival, redaction: Redaction | None, file: RecordingFile
    ) -> ArrivalLine:
        entry = detail.entry
        payload, why = _payload(detail, moment, redaction)
        event = msgspec.json.decode(payload) if isinstance(payload, Raw) else None
        return ArrivalLine(
            file.next_number,
            moment.at_ms - file.began_ms,
            entry.surface,
            event=self._names.of_bytes("key", _key_of(detail)),
            content=self._content(entry, moment),
            tenant=self._names.of_text(entry.tenant)
            if redaction is None
            else redaction.tenant(entry.tenant),
            type=None if redaction is None else text_at(event, redaction.rules.type),
            occurred_at=None if redaction is None else text_at(event, redaction.occurred_at),
            payload=payload,
            why=why,
            about=moment.is_about,
        )

    def _content(self, entry: Entry, moment: ExportedArrival) -> str:
        if moment.kind is RepeatClass.CONFLICT:
            return self._names.of_bytes("other content", b"%d:%d" % (entry.entry_id, moment.number))
        return self._names.of_bytes("content", entry.fingerprint)


def _payload(
    detail: EntryDetail, moment: ExportedArrival, redaction: Redaction | None
) -> tuple[Raw | UnsetType, str | None]:
    if redaction is None:
        return UNSET, NO_RULES
    if moment.kind is RepeatClass.CONFLICT:
        return UNSET, FIRST_ONLY
    if detail.body is None:
        return UNSET, FORGOTTEN
    try:
        event = msgspec.json.decode(detail.body)
    except msgspec.DecodeError:
        return UNSET, NO_JSON
    return Raw(canonical_json(redaction.redact(event))), None


def _key_of(detail: EntryDetail) -> bytes:
    """The key that the event came under; one that is kept beside it has a key of its own."""
    wanted = wanted_key(detail)
    return detail.entry.key if wanted is None else wanted.digest


def _answer(number: int, detail: EntryDetail, moment: ExportedArrival) -> AnswerLine:
    if wanted_key(detail) is not None:
        return AnswerLine(number, Verdict.CONFLICT.value, repeat=RepeatClass.CONFLICT.label)
    if moment.kind is None:
        return AnswerLine(number, _PARKED.get(detail.entry.state, Verdict.RUN).value)
    return AnswerLine(number, _VERDICTS[moment.kind].value, repeat=moment.kind.label)
