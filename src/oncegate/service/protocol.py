"""uvicorn's HTTP protocol with absolute deadlines and limits, which it does not have itself.

A request's headers must be complete within one time, counted from its first byte or, for the first request,
from the connection; its body within another, and it must not come by drops. A slow sender gets 408 where
that is still possible, and is cut off. A client that does not read an answer is cut off too. At the bound
of connections the oldest idle ones are closed. A refusal is a problem document. A request for another
protocol is answered in this one. Must never answer in the place of a request that is being carried out: its
own answer is the last one then.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import httptools
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from oncegate.service.connections import Connections
from oncegate.service.pipelining import PIPELINED_BYTES_MAX, PipelinedHttp
from oncegate.service.protocol_errors import BODY_TOO_LARGE, CROWDED, FULL, MALFORMED, TIMED_OUT, TOO_LARGE
from oncegate.service.slow_body_limiter import ArrivingBodies
from oncegate.service.write_timeout import UnreadAnswer

HEADERS_WITHIN_SECONDS: Final = 10.0
BODY_WITHIN_SECONDS: Final = 30.0
UNREAD_SECONDS: Final = 30.0  # without a byte of an answer being taken
HEADER_BYTES_MAX: Final = 32 * 1024
HEADERS_MAX: Final = 100
WIRE_BYTES_MAX: Final = 16 * 1024 * 1024  # of a body with its chunks' heads and whatever follows it
LOOK_SECONDS: Final = 5.0  # how often a body that is arriving is looked at
BODY_BYTES_PER_LOOK_MIN: Final = 500  # a sender that is only slow sends more


class BoundedHttp(PipelinedHttp):
    """One connection within limits."""

    headers_within_seconds = HEADERS_WITHIN_SECONDS
    body_within_seconds = BODY_WITHIN_SECONDS
    unread_seconds = UNREAD_SECONDS
    header_bytes_max = HEADER_BYTES_MAX
    look_seconds = LOOK_SECONDS
    wire_bytes_max = WIRE_BYTES_MAX
    arriving = ArrivingBodies()
    room = Connections()

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.access_log = False  # its lines would hold targets as they came, cursors included
        self._deadline: asyncio.TimerHandle | None = None
        self._bytes_before_body = 0  # received before the headers were complete, as many as can be theirs
        self._bytes_of_others = 0  # of these, what may belong to requests before, in the same read
        self._read_bytes = 0
        self._has_begun = False  # a request, whose headers are not complete
        self._is_arriving = False  # a body that did not come at once, or requests that wait for an answer
        self._body_bytes = 0  # received since the body was looked at last
        self._wire_bytes = 0  # received since the headers were complete
        self._body_ends_at = 0.0
        self._idle_since = 0.0
        self._unread: UnreadAnswer

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Starts the clock for the first request."""
        super().connection_made(transport)
        self._unread = UnreadAnswer(transport, self.loop, self.unread_seconds)
        self._idle_since = self.loop.time()
        if self.room.enter(self._peer, self):
            self._within(self.headers_within_seconds, self._too_late)
        else:
            self._refuse(FULL)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stops the clock."""
        self._in_time()
        self._arrived()
        self._behind = b""
        self._unread.rest()
        self.room.leave(self._peer, self)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """There is more of an answer than the peer takes at once."""
        super().pause_writing()
        self._unread.watch()

    def resume_writing(self) -> None:
        """The peer has taken most of it."""
        super().resume_writing()
        self._unread.rest()
        if self.transport.is_closing():
            self._unread.watch()

    def on_response_complete(self) -> None:
        """An answer is written; with the last one the connection ends once it is taken."""
        super().on_response_complete()
        self._idle_since = self.loop.time()
        if self.transport.is_closing():
            self._unread.watch()
        else:
            self._go_on_behind()

    def timeout_keep_alive_handler(self) -> None:
        """Nothing has come for long: the connection ends once all answers are taken."""
        super().timeout_keep_alive_handler()
        self._unread.watch()

    def _feed(self, data: bytes | memoryview) -> bool:
        """Gives bytes to the parser; those of a request line or header that does not end count too."""
        self._read_bytes = len(data)
        if not self._is_reading:
            self._bytes_before_body += self._read_bytes
        elif not self._takes_more(self._read_bytes):
            return False
        if self.timeout_keep_alive_task is not None:
            self._unset_keepalive_if_required()
        try:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as stop:
                self._read_without_upgrade(memoryview(data)[stop.args[0] :])
        except httptools.HttpParserError:
            self._refuse(MALFORMED)
            return False
        if self._is_reading:
            if not self._is_arriving:
                self._begin_arriving()
        elif self._bytes_before_body or self._has_begun:
            self._go_on_with_headers()
        return not (self._is_refused or self.transport.is_closing())

    def _read_without_upgrade(self, rest: memoryview) -> None:
        """Reads a request as if it did not ask for another protocol, and then what came behind its head.

        The parser takes all that follows such a head for the other protocol, a body too, and ends the
        request. So a new one is given the head again, without what asked.
        """
        while not self._is_refused:
            head = self._head_without_upgrade()
            self.parser = httptools.HttpRequestParser(self)
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's own
            self.parser.feed_data(head)
            try:
                self.parser.feed_data(rest)
                return
            except httptools.HttpParserUpgrade as stop:  # of a request behind
                rest = rest[stop.args[0] :]

    def _head_without_upgrade(self) -> bytes:
        version = self.parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, version)]
        lines += [b"%b: %b" % pair for pair in self.headers if pair[0] != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])

    def _takes_more(self, count: int) -> bool:
        """Counts bytes of a body with what is around it: chunks' heads and what follows the last."""
        self._body_bytes += count
        self._wire_bytes += count
        if self._wire_bytes > self.wire_bytes_max:
            self._refuse(BODY_TOO_LARGE)
        return not self._is_refused

    def _go_on_with_headers(self) -> None:
        if self._is_refused:
            return
        if self._bytes_before_body - self._bytes_of_others > self.header_bytes_max:
            self._refuse(TOO_LARGE)
        elif self._deadline is None:
            self._within(self.headers_within_seconds, self._too_late)

    def on_message_begin(self) -> None:
        """A request has begun."""
        self._has_begun = True
        if not self._bytes_before_body:
            self._begin_behind()
        self._begin_scope()

    def _begin_scope(self) -> None:
        super().on_message_begin()

    def _begin_behind(self) -> None:
        """Where the request before ended in this read is not told: all of it may be this one's headers."""
        self._bytes_before_body = self._bytes_of_others = self._read_bytes

    def on_header(self, name: bytes, value: bytes) -> None:
        """Takes a header, and no more than so many; what comes behind a body is no header."""
        if self._is_reading or len(self.headers) > HEADERS_MAX:
            return
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """From here on the body's time counts."""
        if self._is_refused:
            return
        if len(self.headers) > HEADERS_MAX or (
            self._bytes_before_body > self.header_bytes_max and self._header_bytes() > self.header_bytes_max
        ):
            self._refuse(TOO_LARGE)
            return
        if self.parser.should_upgrade():
            self._stop_before_upgrade()
            return
        self._is_reading, self._has_begun = True, False
        self._bytes_before_body = self._bytes_of_others = 0
        if self._deadline is not None:
            self._in_time()
        self._body_left = -1
        self._begin_request()
        if self._body_left < 0:
            self._body_left = self._announced()

    def _stop_before_upgrade(self) -> None:
        """Here the parser ends the request, which is then read without upgrade; a tunnel cannot be."""
        if self.parser.get_method() == b"CONNECT":
            self._refuse(MALFORMED)

    def _header_bytes(self) -> int:
        """The bytes of target and headers; counted only where more came at once than they may have."""
        return len(self.url) + sum(len(name) + len(value) for name, value in self.headers)

    def _announced(self) -> int:
        """How long the body is; the parser has refused what says it twice or otherwise."""
        for name, value in self.headers:
            if name == b"content-length":
                return int(value)
        return -1

    def _begin_request(self) -> None:
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Takes a part of the body, unless the request was refused."""
        self._body_left -= len(body)
        if not self._is_refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is here, unless its headers were refused or are to be read again."""
        if not self._is_reading:
            return
        self._is_reading, self._has_begun, self._bytes_before_body = False, False, 0
        self._is_over = True
        if self._deadline is not None:
            self._in_time()
        if self._is_arriving:
            self._arrived()
        if not self._is_refused:
            self._end_request()

    def _end_request(self) -> None:
        super().on_message_complete()

    def _within(self, seconds: float, late: Any) -> None:
        self._in_time()
        self._deadline = self.loop.call_later(seconds, late)

    def _in_time(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_late(self) -> None:
        self._deadline = None
        if self.flow.read_paused:  # it is we who do not read: an earlier request is being carried out
            self._within(self.headers_within_seconds, self._too_late)
        else:
            self._refuse(TIMED_OUT)

    def _begin_arriving(self) -> None:
        """The body did not come with its headers: it has a time, a least speed, and room with others."""
        self._is_arriving, self._body_bytes, self._wire_bytes = True, 0, 0
        self._body_ends_at = self.loop.time() + self.body_within_seconds
        self.arriving.enter(self._peer, self)
        if not self._is_refused:
            self._within(min(self.look_seconds, self.body_within_seconds), self._look)

    def _look(self) -> None:
        """Goes on waiting for a body, unless its time is up or too little has come since the last look."""
        self._deadline = None
        if self.flow.read_paused:  # it is we who do not read: an earlier request is being carried out
            self._body_ends_at += self.look_seconds
            self._within(self.look_seconds, self._look)
            return
        left = self._body_ends_at - self.loop.time()
        if left <= 0 or self._body_bytes < BODY_BYTES_PER_LOOK_MIN:
            self._refuse(TIMED_OUT)
            return
        self._body_bytes = 0
        self._within(min(self.look_seconds, left), self._look)

    def _arrived(self) -> None:
        if self._is_arriving:
            self._is_arriving = False
            self.arriving.leave(self._peer, self)

    @property
    def _peer(self) -> str:
        return self.client[0] if self.client else ""

    def _has_bytes_behind(self) -> None:
        """They take the room of bodies that are arriving."""
        if len(self._behind) > PIPELINED_BYTES_MAX:
            self._refuse(CROWDED)
        elif not self._is_arriving:
            self._is_arriving = True
            self.arriving.enter(self._peer, self)

    def cut_off(self) -> None:
        """Makes room for a body that may come quicker."""
        self._is_arriving = False
        self._refuse(CROWDED)

    def idle_since(self) -> float | None:
        """Since when there is no request whose head has come, and nothing of an answer to be taken."""
        is_answered = self.cycle is None or self.cycle.response_complete
        if not is_answered or self._is_reading or self._behind or self.transport.get_write_buffer_size():
            return None
        return self._idle_since

    def make_room(self) -> None:
        """Ends an idle connection, because there are too many."""
        if self._has_begun:
            self._refuse(FULL)
        else:
            self._is_refused = True
            self._in_time()
            self.transport.close()

    def _refuse(self, answer: bytes) -> None:
        """Ends the connection, with an answer unless another one is under way."""
        self._in_time()
        self._arrived()
        self._is_refused, self._behind = True, b""
        if self.transport.is_closing():
            return
        if self._is_carried_out():
            self.cycle.keep_alive = False  # its answer is the last one
            return
        if self._may_answer():
            self.transport.write(answer)
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()
        self._unread.watch()

    def _may_answer(self) -> bool:
        """Whether what is refused has no answer yet, and nothing before it waits for an answer."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None:
            return True
        if cycle.response_complete:
            return not self._is_reading
        return not cycle.response_started and not self.pipeline
