"""Signals: what is measured, when a person is called, and how others may watch: metrics, rules, spans."""
