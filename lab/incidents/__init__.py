"""Incidents, each a recording with a story: played without a gate, which shows the damage, and with one.

incident    what an incident is, and how it is judged
stage       virtual time for tasks on a real ledger
outside     a downstream that leaves its record on disk, whoever is killed
catalogue   all of them by name
fixtures/   the recordings (docs/recording.md)
"""
