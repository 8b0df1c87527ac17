"""No models: the ledger has its own tables. Django sends `post_migrate` only to apps with this module."""
