"""The simulator: the production gate and reconciler under thousands of seeded schedules of faults a second.

A schedule is a value: events, deliveries and faults. The same schedule always gives the same trace.
Workers run the production flows on a virtual-time loop over a verified fake of the store; downstreams
keep their own truth; small checkers, one for each invariant, compare the two.
"""
