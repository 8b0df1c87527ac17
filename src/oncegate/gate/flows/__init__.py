"""Flows: generators that yield operations, calls and pauses, and decide what follows. They do no I/O.

A driver (`gate.driver`) performs what a flow yields, for a thread or for a task. There is one copy of the
logic.
"""
