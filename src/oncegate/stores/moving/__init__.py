"""Moves a whole ledger from SQLite to PostgreSQL."""
