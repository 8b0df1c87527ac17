"""The operations page: what the gate, the lanes and the feed are doing, and what waits for a person.

A mountable ASGI application, rendered on the server. It reads the ledger and nothing else, decides nothing
itself, and acts only through the use cases that the command line uses too.
"""
