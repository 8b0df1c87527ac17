"""The gate: admit an event, run its effect once, commit its outcome with the business write.

facade        what users call: admit, once, handler, downstream
gate          the engine behind it: reads events and makes flows of them; internal
once          what a handler gets: effects, steps, commits
registration  surfaces and downstreams as users declare them
options       the options of surfaces, for type checkers
flows/        what happens, as generators without I/O: admit, effects, settlement, recovery
admission     the answer to an arrival
runtime/      what one process knows: claims, leases, cache, circuits, arrival statistics
surface       a rule with its handler, a downstream with its probe
driver/       runs flows for threads, tasks and callbacks
codec/        values as stored bytes and back, and what is known of users' functions
"""
