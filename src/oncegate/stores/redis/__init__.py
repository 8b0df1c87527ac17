"""The ledger on Redis or Valkey: claims and open entries, for short windows."""

from oncegate.stores.redis.store import RedisStore

__all__ = ["RedisStore"]
