"""Roll-back: compensations that a person approves, from a snapshot, mutations and the live state (E9).

    mutations   declares changes of users' objects, and records each with the event that made it
    planning    compares snapshot, mutations and live state; proposes a line an object
    plans       stored plans: approval, second person, expiry, progress
    applying    runs approved lines through the gate, each exactly once; checks and seals the end

Roll-back never forgets a key: a repeat of an event that was rolled back is still a repeat (I17).
"""
