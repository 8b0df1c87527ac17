"""Rows of users' tables, read a few thousand at a time; for `oncegate import`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final

import psycopg

from oncegate.stores.postgres.failures import translate

ROWS_AT_ONCE: Final = 2_000


def rows_of(url: str, table: str) -> Iterator[dict[str, Any]]:
    """The rows of a table by column; its name is quoted already."""
    try:
        with closing(psycopg.connect(url)) as connection, connection.cursor("oncegate_rows") as cursor:
            cursor.itersize = ROWS_AT_ONCE
            cursor.execute(f"SELECT * FROM {table}".encode())
            names = [column.name for column in cursor.description or ()]
            yield from (dict(zip(names, row, strict=True)) for row in cursor)
    except psycopg.Error as error:
        raise translate(error, committing=False) from error
