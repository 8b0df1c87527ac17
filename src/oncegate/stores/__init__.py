"""The ledgers: one folder a store, each an implementation of `oncegate.store`."""
