"""Making a plan: the mutations since a snapshot, replayed in dry-run and compared with the live state.

Changes nothing. Refuses to plan on data that is incomplete: a belief that the program does not declare, an
object that cannot be read, a part that is missing.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from oncegate.clock import utc_text
from oncegate.errors import PlanRefused, SnapshotError
from oncegate.gate.gate import GateEngine
from oncegate.journal.rollback.live import LiveReader, live_reader, live_spool
from oncegate.journal.rollback.mutations import MutationRule
from oncegate.journal.rollback.plans import (
    LEFT_SHOWN_MAX,
    LeftAlone,
    PlanLines,
    PlanState,
    RollbackLine,
    RollbackPlan,
)
from oncegate.journal.snapshots.archive import Archive, StoredManifest, compared, digest_of, read_lines
from oncegate.journal.snapshots.beliefs import LEDGER, Belief, id_of
from oncegate.journal.snapshots.manifest import BeliefEntry, PartEntry
from oncegate.journal.snapshots.spool import Spool
from oncegate.model.canonical import canonical_json
from oncegate.store import Mutated, Session
from oncegate.store.sealing import ERASED_VALUE

MUTATIONS_MAX: Final = 200_000
STEP: Final = 5_000
EXPIRES: Final = timedelta(hours=1)
SECOND_ABOVE: Final = 100  # lines from which on a second person must approve
WHY_MAX: Final = 5


class Chain(Struct):
    """What events did to one object since the snapshot, in order."""

    family: str
    target: str
    rule: MutationRule | None
    rows: list[Mutated]

    @property
    def first(self) -> Mutated:
        """The first change: its value before is the oldest that is recorded."""
        return self.rows[0]

    @property
    def expected(self) -> tuple[bool, bytes | None]:
        """Whether the value after the last change is on record, and the value."""
        begun = {row.nth for row in self.rows if not row.is_done}
        done = {row.nth for row in self.rows if row.is_done}
        last = next((row for row in reversed(self.rows) if row.is_done), None)
        is_known = last is not None and begun <= done
        return is_known, None if last is None else last.after

    @property
    def is_erased(self) -> bool:
        """Whether values of it were erased on request: what the events changed is not known any more."""
        return any(ERASED_VALUE in (row.before, row.after) for row in self.rows)

    @property
    def entries(self) -> tuple[int, ...]:
        """The events, by the numbers of their entries."""
        return tuple(dict.fromkeys(row.entry_id for row in self.rows))


class Planner:
    """Makes plans for one gate."""

    def __init__(
        self,
        engine: GateEngine,
        archive: Archive,
        beliefs: Mapping[str, Belief],
        rules: Mapping[str, MutationRule],
        *,
        second_above: int = SECOND_ABOVE,
        expires: timedelta = EXPIRES,
    ) -> None:
        self._engine, self._archive, self._beliefs, self._rules = engine, archive, beliefs, rules
        self._second_above, self._expires = second_above, expires

    async def make(self, to: StoredManifest, actor: str, name: str = "") -> tuple[RollbackPlan, PlanLines]:
        """A plan that leads back to a snapshot; raises PlanRefused where the data is incomplete."""
        try:
            return await self._make(to, actor, name)
        except SnapshotError as error:
            raise PlanRefused(f"{error}; no plan was made") from error

    async def _make(self, to: StoredManifest, actor: str, name: str) -> tuple[RollbackPlan, PlanLines]:
        self._check_beliefs(to)
        await asyncio.to_thread(self._archive.verify_parts, to.manifest, set())
        chains = await asyncio.to_thread(self._chains, to.manifest.mark)
        async with AsyncExitStack() as stack:
            spools: dict[str, Spool] = {}
            for belief in to.manifest.beliefs:
                if belief != LEDGER:
                    spools[belief] = stack.enter_context(await live_spool(self._beliefs[belief]))
            wanted = await asyncio.to_thread(self._snapshot_values, to, chains)
            reader = await stack.enter_async_context(live_reader(self._engine))
            lines, right = await self._lines(reader, chains, wanted, spools)
            touched = {(chain.family, chain.target) for chain in chains}
            left = await asyncio.to_thread(lambda: list(self._left_alone(to, spools, touched)))
        made = PlanLines(tuple(lines), tuple(left[:LEFT_SHOWN_MAX]))
        plan = self._plan(to, actor, name, made)
        rows = sum(len({row.nth for row in chain.rows}) for chain in chains)
        return replace(plan, already_right=right, left_alone=len(left), mutations=rows), made

    def _plan(self, to: StoredManifest, actor: str, name: str, made: PlanLines) -> RollbackPlan:
        now_ms = self._engine.clock.wall_ms()
        conflicts = tuple(line.number for line in made.lines if line.conflict and line.hand is None)
        return RollbackPlan(
            name=name or secrets.token_hex(4),
            snapshot=to.manifest.number,
            snapshot_hash=to.hash,
            made_at_ms=now_ms,
            made_by=actor,
            expires_at_ms=now_ms + self._expires // timedelta(milliseconds=1),
            state=PlanState.PROPOSED,
            second_above=self._second_above,
            digest=made.digest,
            lines=len(made.lines),
            conflicts=sum(line.conflict is not None for line in made.lines),
            by_hand=sum(line.hand is not None for line in made.lines),
            unticked=conflicts,
        )

    def _check_beliefs(self, to: StoredManifest) -> None:
        missing = [name for name in to.manifest.beliefs if name != LEDGER and name not in self._beliefs]
        if missing:
            raise PlanRefused(
                f"snapshot {to.manifest.number} has the belief {missing[0]!r}, and the program declares no"
                " such belief: the live state cannot be read; no plan was made"
            )

    def _chains(self, mark: str) -> list[Chain]:
        found: dict[tuple[str, str], Chain] = {}
        with self._engine.store.look() as session:
            for row in _rows(session, mark):
                rule = self._rules.get(row.name)
                family = (rule.belief if rule else None) or row.name
                chain = found.setdefault((family, row.target), Chain(family, row.target, rule, []))
                chain.rows.append(row)
                chain.rule = rule
        return list(found.values())

    def _snapshot_values(self, to: StoredManifest, chains: Sequence[Chain]) -> dict[tuple[str, str], bytes]:
        """The touched objects as the snapshot has them; those it does not have are absent here."""
        ids: dict[str, set[str]] = {}
        for chain in chains:
            ids.setdefault(chain.family, set()).add(chain.target)
        return {
            (family, one): body
            for family, wanted in ids.items()
            if family in to.manifest.beliefs
            for one, body in self._archive.objects(to.manifest.beliefs[family], wanted)
        }

    async def _lines(
        self,
        reader: LiveReader,
        chains: Sequence[Chain],
        wanted: Mapping[tuple[str, str], bytes],
        spools: Mapping[str, Spool],
    ) -> tuple[list[RollbackLine], int]:
        lines: list[RollbackLine] = []
        right = 0
        doubles = _Doubles(self._beliefs, spools, chains)
        with self._engine.store.look() as session:
            events = _Events(session)
            for chain in chains:
                back = wanted.get((chain.family, chain.target))
                if chain.family not in spools:  # no belief: the oldest recorded value
                    back = ERASED_VALUE if chain.is_erased else chain.first.before
                live = None
                if chain.rule is not None:
                    live = await reader.read(chain.rule, chain.target)
                line = _line(len(lines) + 1, chain, back, live)
                if line is None:
                    right += 1
                else:
                    why = (*doubles.of(chain), *events.of(chain))
                    lines.append(replace(line, why=why))
        return lines, right

    def _left_alone(
        self, to: StoredManifest, spools: Mapping[str, Spool], touched: set[tuple[str, str]]
    ) -> Iterator[LeftAlone]:
        """What differs from the snapshot and no recorded mutation has changed."""
        for family, spool in spools.items():
            for one in self._differences(family, to.manifest.beliefs[family], spool):
                if (family, one.id) not in touched:
                    yield LeftAlone(family, one.id, one.change.value)

    def _differences(self, family: str, entry: BeliefEntry, spool: Spool) -> Iterator[Any]:
        now = {part.place: part for part in spool.parts(entry.bits)}
        was = {part.place: part for part in self._archive.parts(entry)}
        listed = [PartEntry(one.place, one.count, one.digest) for one in now.values()]
        if digest_of(listed) == entry.digest:
            return
        for place in sorted(now.keys() | was.keys()):
            old = was[place].digest if place in was else None
            new = now[place].digest if place in now else None
            if old != new:
                before = dict(read_lines(self._archive.part(old))) if old else {}
                after = dict(read_lines(now[place].body)) if new else {}
                yield from compared(family, before, after)


def _rows(session: Session, mark: str) -> Iterator[Mutated]:
    after = count = 0
    while page := session.mutations_since(mark, after, STEP):
        count += len(page)
        if count > MUTATIONS_MAX:
            raise PlanRefused(f"more than {MUTATIONS_MAX:,} changes since the snapshot; choose a later one")
        yield from page
        after = page[-1].number


def _line(number: int, chain: Chain, back: bytes | None, live: bytes | None) -> RollbackLine | None:
    """What to do about one object; None where it is as it was."""
    rule = chain.rule
    is_known, expected = chain.expected
    if rule is None or rule.compensate is None or chain.is_erased:
        if rule is not None and live == back:
            return None
        return RollbackLine(
            number, chain.family, chain.target, chain.rows[-1].name, live, back, (), chain.entries,
            None, _hand(chain, back),
        )  # fmt: skip
    to, conflict = back, None
    if not is_known:
        conflict = "the value after the last event is not on record: the process died in it"
    elif live != expected:
        conflict = "changed since by something other than a recorded event"
    if rule.by_field and live is not None and back is not None:
        to, conflict = _by_field(chain, back, live, None if is_known else conflict)
    if live == to:
        return None
    return RollbackLine(
        number, chain.family, chain.target, rule.name, live, to, (), chain.entries, conflict
    )


def _by_field(chain: Chain, back: bytes, live: bytes, unknown: str | None) -> tuple[bytes, str | None]:
    """Sets back only the fields that events changed; a field that has another value since is a conflict."""
    old, now = msgspec.json.decode(back), msgspec.json.decode(live)
    made, moved = dict(now), []
    expected = dict(old)
    for row in chain.rows:
        if row.is_done and row.after is not None:
            expected |= msgspec.json.decode(row.after)
    for name in _changed_fields(chain):
        if name in old:
            made[name] = old[name]
        else:
            made.pop(name, None)
        if now.get(name) != expected.get(name):
            moved.append(name)
    told = f"changed since: {', '.join(sorted(moved))}" if moved else unknown
    return canonical_json(made), told


def _changed_fields(chain: Chain) -> set[str]:
    names: set[str] = set()
    for row in chain.rows:
        before = msgspec.json.decode(row.before) if row.before else {}
        after = msgspec.json.decode(row.after) if row.after else {}
        names |= {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    return names


def _hand(chain: Chain, back: bytes | None) -> str:
    value = "remove it" if back is None else f"set it back to {back.decode()[:400]}"
    undeclared = "the program does not declare this mutation" if chain.rule is None else "no compensation"
    if chain.is_erased:
        undeclared = "values of its changes were erased on request"
    return f"{undeclared}: {value}, by hand in {chain.family}, id {id_of(chain.target)}"


class _Doubles:
    """Which created objects have the content of another one: found in one pass over the live state."""

    def __init__(
        self, beliefs: Mapping[str, Belief], spools: Mapping[str, Spool], chains: Sequence[Chain]
    ) -> None:
        self._contents: dict[tuple[str, str], bytes] = {}
        for chain in chains:
            _, after = chain.expected
            is_new = chain.first.before is None and after is not None and not chain.is_erased
            if chain.family in spools and is_new and after is not None:
                content = beliefs[chain.family].content_of(msgspec.json.decode(after))
                self._contents[chain.family, chain.target] = content
        asked = {family: set[bytes]() for family in spools}
        for (family, _), content in self._contents.items():
            asked[family].add(content)
        self._holders = {name: spool.holders(asked[name]) for name, spool in spools.items() if asked[name]}

    def of(self, chain: Chain) -> tuple[str, ...]:
        content = self._contents.get((chain.family, chain.target))
        if content is None:
            return ()
        others = [one for one in self._holders[chain.family].get(content, ()) if one != chain.target]
        if not others:
            return ()
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        return (f"made with the content of {id_of(others[0])}{more}",)


class _Events:
    """What is said of the events behind a line."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._known: dict[int, str] = {}

    def of(self, chain: Chain) -> tuple[str, ...]:
        names = {row.entry_id: row.name for row in chain.rows}
        told = [f"{names[entry]} by {self._event(entry)}" for entry in chain.entries[:WHY_MAX]]
        more = len(chain.entries) - WHY_MAX
        return (*told, *([f"and {more} more events"] if more > 0 else ()))

    def _event(self, entry_id: int) -> str:
        if entry_id not in self._known:
            found = self._session.detail(entry_id)
            if found is None:
                self._known[entry_id] = f"entry {entry_id}, which is forgotten"
            else:
                entry = found.entry
                at = utc_text(entry.received_at_ms)[:19]
                self._known[entry_id] = f"entry {entry_id} of {entry.surface}, {entry.label[:60]}, {at}Z"
        return self._known[entry_id]


def find_snapshot(archive: Archive, text: str) -> StoredManifest:
    """The snapshot to go back to; raises PlanRefused for one that cannot be trusted."""
    try:
        return archive.find(text)
    except SnapshotError as error:
        raise PlanRefused(f"{error}; no plan was made") from error
