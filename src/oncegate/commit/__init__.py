"""The commit engine: operations that wait for the same ledger share one transaction.

    caller (thread or task)          batch                       ledger
    -----------------------          -----                       ------
    Reserve(key A)  ----+
    Settle(claim B) ----+--> Pending --> Batching: who may  --> Transactions: one unit,
    Record(key C)   ----+              share one unit           one commit, many answers

Operations that arrive while a commit is under way form the next batch. There is no timer: a lone
operation starts at once. Where a batch runs depends on the store:

    group_commit      chooses the place: the caller's own thread, the event loop, or a writer thread
    loop_batches      a local ledger and an event loop: statements in the loop, the commit beside it
    writer_threads    threads that take what has gathered; a remote ledger has several
    greenlet_bridge   a handler's own transaction in an event loop: blocking code in a greenlet

Who is batched with whom:

    batching          operations that carry users' statements are apart from those that carry none
    transactions      runs a batch; one operation's failure undoes only that operation; an unknown
                      commit is read back by token before any caller gets an answer
    blocked           operations that a lock holds up, each run by itself

`operations` and its neighbours (lanes, registry, traces, notices, seen) wrap one request of the store
contract each. `pending` holds an operation and its caller. `forks` closes connections before a fork.
"""
