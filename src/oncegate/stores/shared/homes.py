"""Words that the databases of a re-sharded ledger and their stores share: see `stores.sharded.sides`."""

from __future__ import annotations

from typing import Final

from oncegate.store import incarnations

STAMP: Final = ("shard", "set")  # kind and name of the document that says which shard a database is
HOME: Final = (
    incarnations.HOME
)  # the kind of the documents that say what a database has of each virtual shard
REFUSAL: Final = "this ledger has given the key to another shard; nothing was run"
REFUSAL_STATE: Final = "OG001"
# What a document says: the keys are here; claims may end, none may begin; a copy not used yet; not here.
HERE, LEAVING, ARRIVED, GONE = b"here", b"leaving", incarnations.ARRIVED, incarnations.GONE
