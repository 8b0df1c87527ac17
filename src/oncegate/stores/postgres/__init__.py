"""The ledger for many machines: PostgreSQL."""

from oncegate.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
