"""Scripts that run in other environments, one a peer, without this package; `oncegate_peer` is our own."""
