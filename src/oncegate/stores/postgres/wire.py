"""Statements sent in one go and answered in one go: libpq's pipeline, without the driver's cursors.

A batch, or a handler's whole transaction, is one send and one wait. Every statement with parameters stays
prepared on its connection. Used by the session only, one exchange at a time. Must never leave answers
unread: what follows would take them for its own.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from itertools import count
from select import POLLIN, poll
from typing import Any, Final, TypeAlias

import psycopg
from psycopg import errors as postgres
from psycopg.adapt import PyFormat, Transformer
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus, Format
from psycopg.pq.abc import PGconn, PGresult

from oncegate.stores.postgres.limits import LimitedConnection

PREPARED_MAX: Final = 500  # on one connection; users' statements beyond that are sent whole
_READ, _READ_WRITE, _READABLE = 1, 3, 1
_WELL: Final = frozenset({ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK, ExecStatus.EMPTY_QUERY})
_COPIES: Final = frozenset({ExecStatus.COPY_IN, ExecStatus.COPY_OUT, ExecStatus.COPY_BOTH})
_UNREACHED: Final = ExecStatus.PIPELINE_ABORTED
_NOTHING: Final[tuple[Any, tuple[int, ...], Any]] = ((), (), ())

Rows: TypeAlias = list[tuple[Any, ...]]
Exchange: TypeAlias = Generator[Any, int, Any]


class WireCommand:
    """A statement with `$1`, `$2`, … and its parameters."""

    __slots__ = ("parameters", "result_format", "sql")

    def __init__(
        self, sql: str, parameters: Sequence[Any] = (), result_format: Format = Format.BINARY
    ) -> None:
        self.sql = sql
        self.parameters = parameters
        self.result_format = result_format


BEGIN: Final = WireCommand("BEGIN")
COMMIT: Final = WireCommand("COMMIT")
ROLLBACK: Final = WireCommand("ROLLBACK")


class Wire:
    """One connection as a pipeline."""

    def __init__(self, connection: LimitedConnection | psycopg.Connection[Any]) -> None:
        self._connection = connection
        self._transformer = Transformer(connection)
        self._prepared: dict[tuple[str, tuple[int, ...]], bytes] = {}
        self._numbers = count(1)
        self._silence: poll | None = None
        self.last_status: bytes | None = None
        self.failed_at: int | None = None  # which command of the last exchange the server refused

    def send(self, commands: Sequence[WireCommand], then: Sequence[WireCommand] = ()) -> list[Rows]:
        """Sends statements together and returns the rows of each; raises the first error.

        After an error the server has skipped the rest. What fails of `then` changes nothing about the
        statements before it: the connection is closed, and no error is raised.
        """
        self.failed_at = None
        answers: list[PGresult] = self._connection.wait(self._exchange([*commands, *then]))
        results, tidied = answers[: len(commands)], answers[len(commands) :]
        self.last_status = results[-1].command_status if results else None
        for place, result in enumerate(results):
            if result.status not in _WELL and result.status != _UNREACHED:
                self.failed_at = place
                raise _error_of(result)
        if any(result.status not in _WELL for result in tidied):
            self._connection.close()
        return [self._rows(result) if result.ntuples else [] for result in results]

    def is_silent(self) -> bool:
        """Whether nothing has come that was not asked for: a server that goes says so, and closes."""
        pgconn = self._connection.pgconn
        if pgconn.status != ConnStatus.OK:
            return False
        if self._silence is None:
            self._silence = poll()
            self._silence.register(pgconn.socket, POLLIN)
        return not self._silence.poll(0)

    def _exchange(self, commands: Sequence[WireCommand]) -> Exchange:
        pgconn: PGconn = self._connection.pgconn
        pgconn.enter_pipeline_mode()
        asked: list[bool] = []
        fresh: list[tuple[str, tuple[int, ...]]] = []
        try:
            for command in commands:
                self._put(pgconn, command, asked, fresh)
        finally:  # also when a parameter cannot be sent: the rest must still be answered
            pgconn.pipeline_sync()
            results = yield from _flush_and_read(pgconn, asked)
            pgconn.exit_pipeline_mode()
            if fresh and any(result.status not in _WELL for result in results):
                for key in fresh:
                    self._prepared.pop(key, None)  # whether it was prepared is not known
        return results

    def _put(
        self,
        pgconn: PGconn,
        command: WireCommand,
        asked: list[bool],
        fresh: list[tuple[str, tuple[int, ...]]],
    ) -> None:
        """Adds one statement to what is sent; `asked` says which answers are looked for."""
        values, types, formats = self._dump(command.parameters) if command.parameters else _NOTHING
        key = (command.sql, types)
        name = self._prepared.get(key)
        if name is None and len(self._prepared) >= PREPARED_MAX:
            pgconn.send_query_params(command.sql.encode(), values, types, formats, command.result_format)
            asked.append(True)
            return
        if name is None:
            name = self._prepared[key] = b"oncegate_%d" % next(self._numbers)
            fresh.append(key)
            pgconn.send_prepare(name, command.sql.encode(), types)
            asked.append(False)
        pgconn.send_query_prepared(name, values, formats, command.result_format)
        asked.append(True)

    def _dump(self, parameters: Sequence[Any]) -> tuple[Any, tuple[int, ...], Any]:
        transformer = self._transformer
        values = transformer.dump_sequence(parameters, [PyFormat.AUTO] * len(parameters))
        return values, transformer.types or (), transformer.formats

    def _rows(self, result: PGresult) -> Rows:
        self._transformer.set_pgresult(result)
        return self._transformer.load_rows(0, result.ntuples, tuple)


def _flush_and_read(pgconn: PGconn, asked: list[bool]) -> Exchange:
    """Sends what is waiting and reads until the pipeline's end; keeps only answers that were asked for."""
    while pgconn.flush():
        if (yield _READ_WRITE) & _READABLE:
            pgconn.consume_input()
    is_busy, get_result = pgconn.is_busy, pgconn.get_result
    results: list[PGresult] = []
    for wanted in asked:
        found: PGresult | None = None
        while True:  # the answer to one statement, and the nothing that follows it
            while is_busy():
                yield _READ
                pgconn.consume_input()
            more = get_result()
            if more is None:
                break
            if found is None:
                if more.status in _COPIES:
                    raise _no_copies(pgconn)
                found = more
        if found is None:
            raise psycopg.OperationalError("the connection ended before the server's answer")
        if wanted or found.status not in _WELL:
            results.append(found)
    while is_busy():  # the pipeline's end
        yield _READ
        pgconn.consume_input()
    get_result()
    return results


def _no_copies(pgconn: PGconn) -> psycopg.Error:
    pgconn.finish()
    return psycopg.NotSupportedError("COPY cannot be sent here")


def _error_of(result: PGresult) -> psycopg.Error:
    message = result.error_message.decode("utf-8", "replace").removeprefix("ERROR:  ").strip()
    state = result.error_field(DiagnosticField.SQLSTATE)
    try:
        kind: type[psycopg.Error] = postgres.lookup((state or b"").decode())
    except KeyError:
        kind = psycopg.DatabaseError if state else psycopg.OperationalError
    return kind(message, info=result)
