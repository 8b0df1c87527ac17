"""The Valkey server that tests of the Redis ledger share."""

from tests.support.servers_valkey import valkey

__all__ = ["valkey"]
