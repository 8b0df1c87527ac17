/*
 * One key, one downstream, workers that crash and stall, and the reconciler: every interleaving.
 *
 * Checked: at most one effect (I1); a stale fence never settles (I4); no call before the reservation (I5); what is
 * acknowledged was recorded (I3); and no run gets stuck.
 *
 * The downstream is chosen with -DKIND=: 1 honours the key, 2 can be asked, 3 neither.
 * Each protecting clause can be taken out with -DNO_...; `make spin` shows that each gives a counterexample.
 */

#ifndef KIND
#define KIND 2
#endif
#define HONOURS (KIND == 1)
#define ASKED   (KIND == 2)
#define NEITHER (KIND == 3)

#define ATTEMPTS_MAX 3

mtype = { NEW, IN_FLIGHT, RETRYABLE, UNKNOWN, COMMITTED };

/* the ledger's row */
mtype state = NEW;
byte fence = 0;
bool lapsed = false;    /* the lease of the present claim is over */
bool started = false;   /* the start of an unrepeatable call is recorded */
byte attempt = 0;

/* the downstream's truth */
byte effects = 0;
bool owned = false;     /* the key owns something there */
byte under_way = 0;     /* requests that have left and not arrived */

inline act() {
    if
    :: HONOURS && owned -> skip
    :: else -> effects++; owned = true
    fi;
    assert(effects <= 1)                             /* I1 */
}

/* Time may pass: the lease of whoever is at work runs out, be they dead, stalled or slow. */
active proctype Time() {
end_time:
    do
    :: atomic { state == IN_FLIGHT && !lapsed -> lapsed = true }
    :: atomic { state == COMMITTED || state == UNKNOWN -> break }
    od
}

/* A request takes effect at some moment, or is lost on the way. */
proctype Network() {
end_network:
    do
    :: atomic { under_way > 0 -> under_way--; act() }
    :: under_way > 0 -> under_way--
    :: atomic { (state == COMMITTED || state == UNKNOWN) && under_way == 0 -> break }
    od
}

/* One arrival or one turn of the reconciler; it may crash between any two steps. */
proctype Worker(byte me) {
    byte mine = 0;      /* the fence this claim must show */
    byte turns = 0;
    bool second;
    bool found;
    bool replied;

again:
    turns++;
    if
    :: turns > ATTEMPTS_MAX -> goto end
    :: else -> skip
    fi;
    second = false;
    found = false;
    replied = false;

    /* reserve: one conditional statement */
#ifdef NO_ATOMIC_RESERVE
    if
    :: state == NEW -> skip
    :: else -> goto known
    fi;
    atomic { state = IN_FLIGHT; fence++; mine = fence; lapsed = false; attempt++ };
    goto claimed;
known:
#endif
    atomic {
        if
        :: state == NEW ->
            state = IN_FLIGHT; fence++; mine = fence; lapsed = false; attempt++
        :: state == IN_FLIGHT && lapsed ->
            second = true;
#ifndef NO_FENCE_GROWTH
            fence++;
#endif
            mine = fence; lapsed = false; attempt++
        :: state == RETRYABLE ->
            second = true;
            fence++; mine = fence; state = IN_FLIGHT; lapsed = false; attempt++
        :: state == IN_FLIGHT && !lapsed -> goto wait
        :: state == COMMITTED || state == UNKNOWN -> goto answered
        fi
    };
#ifdef NO_ATOMIC_RESERVE
claimed:
#endif
    if
    :: goto end                                      /* crash: reserved, nothing done */
    :: skip
    fi;

#ifdef NO_RECOVERY_DECISION
    second = false;
#endif

    /* a later attempt looks before it calls */
    if
    :: second && NEITHER && started ->
        atomic {
            if
            :: fence == mine && state == IN_FLIGHT -> state = UNKNOWN
            :: else -> skip
            fi
        };
        goto answered
    :: second && ASKED ->
        atomic {
            found = owned;
#ifndef NO_WAIT_AFTER_NOT_FOUND
            if
            :: !found && under_way > 0 ->            /* an earlier request may still take effect: not yet */
                if
                :: fence == mine && state == IN_FLIGHT -> state = RETRYABLE
                :: else -> skip
                fi;
                goto wait
            :: else -> skip
            fi
#endif
        }
    :: else -> skip
    fi;

    if
    :: found -> goto settle
    :: else -> skip
    fi;

    /* an unrepeatable call records its start first */
    if
    :: NEITHER ->
#ifndef NO_START_RECORD
        atomic {
            if
            :: fence == mine && state == IN_FLIGHT -> started = true
            :: else -> goto end                      /* claim lost */
            fi
        };
#endif
        if
        :: goto end                                  /* crash: started, not called */
        :: skip
        fi
    :: else -> skip
    fi;

    /* the claim is looked at again, and the request leaves: no more time passes in between than a request lives */
    atomic {
#ifndef NO_CLAIM_CHECK
        if
        :: !(fence == mine && state == IN_FLIGHT) -> goto end
        :: else -> skip
        fi;
#endif
        assert(state != NEW);                        /* I5 */
        under_way++
    };

    /* the answer comes, or is lost, or the worker crashes while it waits */
    if
    :: under_way == 0 -> replied = true
    :: goto end                                      /* crash: called, nothing recorded */
    :: skip                                          /* no reply: it is not known */
    fi;

    if
    :: !replied && NEITHER ->
        atomic {
            if
            :: fence == mine && state == IN_FLIGHT -> state = UNKNOWN
            :: else -> skip
            fi
        };
        goto answered
    :: !replied && !NEITHER ->
        atomic {
            if
            :: fence == mine && state == IN_FLIGHT -> state = RETRYABLE
            :: else -> skip
            fi
        };
        goto wait
    :: replied -> skip
    fi;

settle:
    atomic {
        if
#ifdef NO_FENCE_ON_SETTLE
        :: state == IN_FLIGHT ->
#else
        :: fence == mine && state == IN_FLIGHT ->
#endif
            assert(fence == mine);                   /* I4 */
            state = COMMITTED
        :: else -> skip
        fi
    };

answered:
    assert(state != NEW);                            /* I3 */
    goto end;

wait:
    goto again;

end:
    skip
}

init {
    atomic {
        run Network();
        run Worker(1);
        run Worker(2)
#ifdef THREE
        ; run Worker(3)
#endif
    }
}
