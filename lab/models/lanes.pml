/*
 * One lane with three events and two senders that crash, stall and retry: every interleaving.
 *
 * Checked (I10): an event is first sent only when all before it are acknowledged; what is acknowledged is always a
 * prefix of the order, and stays so; a sender that lost its lease changes nothing.
 *
 * Each protecting clause can be taken out with -DNO_...; `make spin` shows that each gives a counterexample.
 */

#define EVENTS 3
#define TURNS_MAX 5

mtype = { WAITING, LEASED, ACKED };

/* the ledger's rows, by seq */
mtype state[4] = WAITING;
byte fence[4] = 0;
bool lapsed = false;

/* the receiver's truth */
bool received[4] = false;

inline check_prefix() {
    assert(!(state[2] == ACKED && state[1] != ACKED));
    assert(!(state[3] == ACKED && state[2] != ACKED))
}

active proctype Time() {
end_time:
    do
    :: atomic {
        (state[1] == LEASED || state[2] == LEASED || state[3] == LEASED) && !lapsed -> lapsed = true
       }
    od
}

inline lease(seq) {
    state[seq] = LEASED; fence[seq]++; mine = fence[seq]; lapsed = false; at = seq
}

proctype Sender() {
    byte at = 0;
    byte mine = 0;
    byte turns = 0;
    bool delivered;

again:
    turns++;
    if
    :: turns > TURNS_MAX -> goto end
    :: else -> skip
    fi;

    /* the head of the lane, if nobody has it */
    atomic {
        if
        :: state[1] == WAITING || (state[1] == LEASED && lapsed) -> lease(1)
        :: state[1] == LEASED && !lapsed ->
#ifdef NO_HEAD_ONLY
            if
            :: state[2] == WAITING -> lease(2)
            :: else -> goto again
            fi
#else
            goto again
#endif
        :: state[1] == ACKED && (state[2] == WAITING || (state[2] == LEASED && lapsed)) -> lease(2)
        :: state[1] == ACKED && state[2] == LEASED && !lapsed -> goto again
        :: state[1] == ACKED && state[2] == ACKED &&
           (state[3] == WAITING || (state[3] == LEASED && lapsed)) -> lease(3)
        :: state[1] == ACKED && state[2] == ACKED && state[3] == LEASED && !lapsed -> goto again
        :: state[3] == ACKED -> goto end
        fi
    };

    if
    :: goto end                                      /* crash: leased, not sent */
    :: skip
    fi;

    /* sent: it arrives and is answered, or the answer is lost, or it never arrives */
    delivered = false;
    atomic {
        if
        :: received[at] = true; delivered = true
        :: received[at] = true
        :: skip
        fi;
        assert(!received[at] || at == 1 || received[at - 1]);
        check_prefix()
    };

    if
    :: goto end                                      /* crash: sent, nothing recorded */
    :: skip
    fi;

    /* settled, if the lease is still ours */
    atomic {
        if
#ifdef NO_FENCE_ON_SETTLE
        :: true ->
#else
        :: fence[at] == mine && state[at] == LEASED ->
#endif
            if
            :: delivered -> state[at] = ACKED
#ifdef ACK_WITHOUT_ANSWER
            :: !delivered -> state[at] = ACKED
#else
            :: !delivered -> state[at] = WAITING
#endif
            fi
#ifndef NO_FENCE_ON_SETTLE
        :: else -> skip
#endif
        fi;
        check_prefix()
    };
    goto again;

end:
    skip
}

init {
    atomic {
        run Sender();
        run Sender()
    }
}
