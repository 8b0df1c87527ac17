"""Lanes, the feed and people's rulings under the simulator's faults, on the embedded ledger's statements.

Two workers deliver lanes to receivers with the production engine, publish to the feed, read it for two
consumers, and carry out what operators decide; they crash, stall and are not answered as the schedule says.
"""
