"""What processes have seen: each learns who came before it, however close; nothing is kept for long."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from oncegate.store import Before, Met, Seen, SeenContent, SeenRepeat, Session
from oncegate.store.seen import REPEATS_KEPT_MAX, SEEN_KEPT_MS, SEEN_ROWS_MAX
from oncegate.testing.conformance.bench import StoreBench

AT, MINUTE_MS = 1_780_000_000_000, 60_000


class SeenConformance(StoreBench):
    """`meet`."""

    def test_a_content_is_met_by_the_next_who_has_it(self) -> None:
        """The latest entry that had it, when, and how many had it by then; each surface by itself."""
        session = self.open()
        assert self._meet(session, _content(1)).before == (None,)
        assert self._meet(session, _content(2, at_ms=AT + 3)).before == (Before(1, AT, 1),)
        assert self._meet(session, _content(3, at_ms=AT + 9, times=2)).before == (Before(2, AT + 3, 2),)
        assert self._meet(session, _content(4, at_ms=AT + 9)).before == (Before(3, AT + 9, 4),)
        assert self._meet(session, _content(5, surface="refunds")).before == (None,)

    def test_what_is_too_long_ago_is_not_met(self) -> None:
        """On either side: processes have clocks of their own. Who comes then is the first again."""
        session = self.open()
        self._meet(session, _content(1))
        late = _content(2, at_ms=AT + MINUTE_MS + 1)
        assert self._meet(session, late).before == (None,)
        assert self._meet(session, _content(3)).before == (None,)
        assert self._meet(session, _content(4, at_ms=AT - MINUTE_MS)).before == (Before(3, AT, 1),)

    def test_contents_of_one_call_are_answered_in_their_order(self) -> None:
        """Whatever order the store writes them in; numbers of 64 bits with their sign."""
        session = self.open()
        numbers = (5, -(2**63), 2**63 - 1, 0, -7)
        self._meet(session, *(_content(10 + place, content=n) for place, n in enumerate(numbers)))
        asked = tuple(_content(99, content=n) for n in (0, 6, *numbers))
        found = self._meet(session, *asked[1:]).before
        assert found == (None, *(Before(10 + place, AT, 1) for place in range(5)))

    def test_of_two_who_come_at_once_the_second_is_told_of_the_first(self) -> None:
        """However many processes bring the same content: each but the first meets exactly one before it."""

        def bring(entry_id: int) -> tuple[Before | None, ...]:
            session = self.open()
            both = (_content(entry_id, content=1), _content(entry_id, content=2))
            # Brought in either order: nobody waits in a circle.
            found = self._meet(session, *(both if entry_id % 2 else both[::-1])).before
            return found if entry_id % 2 else found[::-1]

        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(bring, range(1, 9)))

        for answers in zip(*found, strict=True):
            met = [one for one in answers if one is not None]
            assert len(met) == 7
            assert len({one.entry_id for one in met}) == 7
            assert sorted(one.shared_by for one in met) == list(range(1, 8))

    def test_recent_repeats_of_the_same_surface_are_told_oldest_first(self) -> None:
        """Of other calls, not of this one; a surface that nothing is brought of is not told."""
        session = self.open()
        brought = [_repeat(AT + 2, 7), _repeat(AT + 1, 8), _repeat(AT + 1, 6, surface="refunds")]
        assert self._meet(session, repeats=brought).recent == ()
        found = self._meet(session, repeats=[_repeat(AT + 3, 9)]).recent
        assert found == (_repeat(AT + 1, 8), _repeat(AT + 2, 7))
        assert self._meet(session, _content(1)).recent == ()

    def test_what_was_seen_is_bounded_by_rows_and_age(self) -> None:
        """Trimmed by who asks for it; what is from the future goes too."""
        session = self.open()
        self._meet(session, _content(1, content=1), _content(2, content=2, at_ms=AT + 2 * SEEN_KEPT_MS))
        many = [_repeat(AT + number, number) for number in range(1, REPEATS_KEPT_MAX + 50)]
        self._meet(session, repeats=many)
        later = AT + SEEN_KEPT_MS // 2
        self._meet(session, repeats=[_repeat(later, 999)], now_ms=later, trims=True)
        found = self._meet(session, repeats=[_repeat(later, 1000)], now_ms=later).recent
        assert len(found) == REPEATS_KEPT_MAX
        assert found[-1].entry_id == 999

        over = AT + SEEN_KEPT_MS + 1
        self._meet(session, _content(3, content=3, at_ms=over), now_ms=over, trims=True)
        long_within = SEEN_KEPT_MS * 9
        asked = [_content(9, content=n, at_ms=over, within_ms=long_within) for n in (1, 2, 3)]
        assert self._meet(session, *asked, now_ms=over).before == (None, None, Before(3, over, 1))

    def test_the_contents_of_a_surface_are_bounded(self) -> None:
        """The newest stay."""
        session = self.open()
        many = [_content(n, content=n, at_ms=AT + n) for n in range(1, SEEN_ROWS_MAX + 21)]
        self._meet(session, *many)
        self._meet(session, _content(0, surface="orders", content=-1, at_ms=AT), trims=True)
        asked = [_content(0, content=n, at_ms=AT) for n in (1, 20, 21, SEEN_ROWS_MAX + 20)]
        found = self._meet(session, *asked).before
        assert [one.entry_id if one else None for one in found] == [None, None, 21, SEEN_ROWS_MAX + 20]

    def test_nothing_brought_is_nothing_met(self) -> None:
        """Not an error, and nothing is written."""
        assert self._meet(self.open()) == Met()

    def _meet(
        self,
        session: Session,
        *contents: SeenContent,
        repeats: list[SeenRepeat] | None = None,
        now_ms: int = AT,
        trims: bool = False,
    ) -> Met:
        with session.unit():
            return session.meet(Seen(contents, tuple(repeats or ()), now_ms, trims))


def _content(
    entry_id: int,
    *,
    content: int = 7,
    surface: str = "orders",
    at_ms: int = AT,
    times: int = 1,
    within_ms: int = MINUTE_MS,
) -> SeenContent:
    return SeenContent(surface, content, entry_id, at_ms, within_ms, times)


def _repeat(at_ms: int, entry_id: int, surface: str = "orders") -> SeenRepeat:
    return SeenRepeat(surface, at_ms, entry_id, AT - 5_000, 0)
