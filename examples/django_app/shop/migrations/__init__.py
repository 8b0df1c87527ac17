"""Migrations of the shop; those of the ledger come with oncegate."""
