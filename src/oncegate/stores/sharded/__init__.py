"""Several complete ledgers as one: each key has its ledger, no transaction spans two (decision 0043)."""

from oncegate.stores.sharded.store import ShardedStore

__all__ = ["ShardedStore"]
