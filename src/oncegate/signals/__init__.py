"""Signals: what is measured, when somebody is called, and how others may watch: metrics, rules, spans."""
