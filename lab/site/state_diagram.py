"""The states of an entry as a picture and a page, made from the transition table of `model/states.py`."""

from __future__ import annotations

from typing import Final, NamedTuple
from xml.sax.saxutils import escape

from oncegate.model.states import TRANSITIONS, State

_WIDTH, _HEIGHT = 860, 470
_BOX_WIDTH, _BOX_HEIGHT = 132, 52


class Place(NamedTuple):
    """Where a state is drawn, and the line below its name."""

    x: int
    y: int
    note: str


PLACES: Final[dict[State, Place]] = {
    State.RETRYABLE: Place(120, 70, "waits for a retry"),
    State.IN_FLIGHT: Place(120, 235, "a worker has it"),
    State.COMMITTED: Place(740, 70, "final: done"),
    State.FAILED: Place(740, 400, "final: failed"),
    State.UNKNOWN: Place(430, 70, "outcome unknown"),
    State.HELD: Place(430, 235, "waits for a person"),
    State.QUARANTINED: Place(430, 400, "must not run as is"),
}

# Why an entry goes from one state to another: a row for each pair of the table, and no other.
WHY: Final[dict[tuple[State, State], str]] = {
    (
        State.IN_FLIGHT,
        State.IN_FLIGHT,
    ): "The lease expired. A worker takes the claim over with a new fence.",
    (State.IN_FLIGHT, State.COMMITTED): "The handler returned. Outcome and business write commit together.",
    (State.IN_FLIGHT, State.FAILED): "The handler raised `Failed`.",
    (State.IN_FLIGHT, State.RETRYABLE): "The attempt failed, and no effect is in doubt.",
    (
        State.IN_FLIGHT,
        State.UNKNOWN,
    ): "A call may have taken effect, and neither a key nor a probe can settle it.",
    (State.IN_FLIGHT, State.HELD): "Retries are used up, or too many workers died in a row.",
    (State.RETRYABLE, State.IN_FLIGHT): "The wait is over. A worker claims the key again.",
    (State.RETRYABLE, State.HELD): "Retries are used up.",
    (State.RETRYABLE, State.QUARANTINED): "The content scan found the same change under another key.",
    (State.FAILED, State.RETRYABLE): "An operator lets the event run again.",
    (State.UNKNOWN, State.FAILED): "An operator rejects the event.",
    (
        State.UNKNOWN,
        State.RETRYABLE,
    ): "An operator records what happened. The next attempt continues from there.",
    (State.HELD, State.FAILED): "An operator rejects the event.",
    (State.HELD, State.RETRYABLE): "An operator approves the event. The next attempt runs it.",
    (State.HELD, State.QUARANTINED): "The content scan found the same change under another key.",
    (State.QUARANTINED, State.FAILED): "An operator discards the event.",
    (State.QUARANTINED, State.RETRYABLE): "An operator releases the event. The next attempt runs it.",
}

_STYLE: Final = (
    "text{font:13px system-ui,sans-serif;fill:#222}.name{font-weight:600}.note{font-size:11px;fill:#555}"
    "rect{fill:#eef3f8;stroke:#1a6fb5}.final rect{fill:#e6f3ea;stroke:#2b7a3f}"
    ".person rect{fill:#fdf2df;stroke:#a86a00}"
    "path{fill:none;stroke:#7a828a}#tip path{fill:#7a828a;stroke:none}.ground{fill:#fff;stroke:none}"
)
_TIP: Final = (
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="8" markerHeight="8" '
    'orient="auto-start-reverse"><path d="M0 0L8 4L0 8Z"/></marker></defs>'
)
_PERSON: Final = (State.UNKNOWN, State.HELD, State.QUARANTINED)


def state_diagram() -> str:
    """The picture as SVG: a box for each state, an arrow for each pair of the transition table."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">',
        f"<title>States of an entry and which may follow which</title><style>{_STYLE}</style>",
        _TIP,
        f'<rect class="ground" width="{_WIDTH}" height="{_HEIGHT}"/>',
    ]
    parts += [_arrow(before, after) for before, after in _lines()]
    parts += [_box(state) for state in State]
    return "\n".join([*parts, "</svg>", ""])


def _pairs() -> list[tuple[State, State]]:
    return [(before, after) for before in State for after in State if after in TRANSITIONS[before]]


def _lines() -> list[tuple[State, State]]:
    """Each pair once; the two ways between two states are one line with two tips."""
    pairs = _pairs()
    return [(a, b) for a, b in pairs if not ((b, a) in pairs and b < a)]


def _box(state: State) -> str:
    place = PLACES[state]
    kind = "final" if state.is_final else "person" if state in _PERSON else "running"
    left, top = place.x - _BOX_WIDTH // 2, place.y - _BOX_HEIGHT // 2
    return (
        f'<g class="{kind}" id="{state.label}"><rect x="{left}" y="{top}" width="{_BOX_WIDTH}" '
        f'height="{_BOX_HEIGHT}" rx="8"/>'
        f'<text class="name" text-anchor="middle" x="{place.x}" y="{place.y - 3}">{state.label}</text>'
        f'<text class="note" text-anchor="middle" x="{place.x}" y="{place.y + 14}">'
        f"{escape(place.note)}</text></g>"
    )


def _arrow(before: State, after: State) -> str:
    names = f'data-from="{before.label}" data-to="{after.label}"'
    two = before in TRANSITIONS[after] and before is not after
    tips = ' marker-start="url(#tip)"' * two + ' marker-end="url(#tip)"'
    return f'<path {names} d="{_route(before, after)}"{tips}/>'


def _route(before: State, after: State) -> str:
    a, b = PLACES[before], PLACES[after]
    if before is after:
        left = a.x - _BOX_WIDTH // 2
        return f"M{left} {a.y - 12}C{left - 44} {a.y - 30} {left - 44} {a.y + 30} {left} {a.y + 12}"
    if a.x == b.x and abs(a.y - b.y) > 200:  # past the box between them
        side, bend = a.x + _BOX_WIDTH // 2, 60
        return f"M{side} {a.y}C{side + bend} {a.y} {side + bend} {b.y} {side} {b.y}"
    if a.y == b.y and abs(a.x - b.x) > 400:
        return f"M{a.x} {a.y - 26}C{a.x} {a.y - 70} {b.x} {b.y - 70} {b.x} {b.y - 26}"
    start, end = _edge(a, b), _edge(b, a)
    return f"M{start[0]} {start[1]}L{end[0]} {end[1]}"


def _edge(a: Place, b: Place) -> tuple[int, int]:
    """Where the straight line from the middle of one box to another leaves the first."""
    across, down = b.x - a.x, b.y - a.y
    half_width, half_height = _BOX_WIDTH / 2, _BOX_HEIGHT / 2
    share = min(
        half_width / abs(across) if across else float("inf"),
        half_height / abs(down) if down else float("inf"),
    )
    return round(a.x + across * share), round(a.y + down * share)


_LIFE_HEAD: Final = """\
# Life of an event

<!-- Generated by `python -m lab.site` from src/oncegate/model/states.py and lab/site/state_diagram.py. -->

An event arrives. The gate computes its key and reserves it with one conditional insert. The reservation
is durable before the first outside call. From then on the key has an entry in the ledger, and the entry
has a state.

![States of an entry. A worker moves in_flight on; committed and failed are final](images/states.svg)

A new key starts as `in_flight`. There are three exceptions: an event that cannot be read, or whose time
is out of bounds, starts as `quarantined`; a surface that asks for approval starts as `held`; a surface
without a handler writes `committed` at once.

What a later delivery of the same key gets depends on the state:

| state | the same content again gets |
|---|---|
| `in_flight` | `BUSY` while the lease is valid; after that, recovery |
| `retryable` | `BUSY` until the wait is over; after that, the next attempt |
| `committed` | `REPLAY` with the recorded outcome |
| `failed` | `REPLAY` with the recorded failure |
| `unknown`, `held` | `HOLD` |
| `quarantined` | `QUARANTINE` |

Other content under the same key gets `CONFLICT` in every state. An expired lease never authorises a
second run: it starts recovery, and recovery follows what the [downstream can do](guarantees.md).

## Every transition

A transition that is not in this table does not exist. Every write carries the fence of the claim, so a
worker that stalled cannot cause one.

| from | to | when |
|---|---|---|
"""


def life_page() -> str:
    """The page with the picture and the table of all transitions."""
    rows = [f"| `{a.label}` | `{b.label}` | {WHY[a, b]} |" for a, b in _pairs()]
    final = ", ".join(f"`{state.label}`" for state in State if state.is_final)
    return (
        _LIFE_HEAD
        + "\n".join(rows)
        + f"\n\nFinal states: {final}. Only pruning, and for `failed` an operator, leads out.\n"
    )
