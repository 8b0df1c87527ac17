"""PostgreSQL ledgers that a test keeps for itself, because it damages them or gives their rights away."""

from __future__ import annotations

from itertools import count
from urllib.parse import urlsplit, urlunsplit
from weakref import WeakKeyDictionary

from oncegate.stores.postgres import PostgresStore
from oncegate.testing.postgres import GivenServer, PostgresServer, create_database

_made: WeakKeyDictionary[PostgresServer | GivenServer, str] = WeakKeyDictionary()
_numbers = count(1)


def new_ledger(server: PostgresServer | GivenServer) -> str:
    """The address of an empty ledger in a database of its own: a copy, which takes less than making one."""
    if server not in _made:
        url = server.new_database()
        PostgresStore(url).migrate()
        _made[server] = url
    parts = urlsplit(_made[server])
    template = parts.path.removeprefix("/")
    name = f"{template}_{next(_numbers)}"
    create_database(urlunsplit(parts._replace(path="/postgres")), name, template)
    return urlunsplit(parts._replace(path=f"/{name}"))
