#!/bin/sh
# Checks the models exhaustively, then takes out one protecting clause after another: each must give a counterexample.
# Needs spin and a C compiler; leaves nothing behind.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

errors() {  # model, then definitions
    model=$1
    shift
    spin "$@" -a "$here/$model" >spin.log 2>&1 || { cat spin.log >&2; exit 2; }
    cc -O2 -w -DSAFETY -o pan pan.c
    ./pan -m100000 -n | tee pan.log | sed -n 's/.*errors: \([0-9]*\).*/\1/p'
}

holds() {
    found=$(errors "$@")
    states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' pan.log)
    [ "$found" = 0 ] || { echo "BROKEN  $*"; exit 1; }
    if grep -q "search depth too small\|memory used.*exceed" pan.log; then echo "INCOMPLETE $*"; exit 1; fi
    echo "holds   $* ($states states)"
}

breaks() {
    found=$(errors "$@")
    [ "$found" != 0 ] || { echo "STILL HOLDS without its clause: $*"; exit 1; }
    echo "breaks  $*"
}

for kind in 1 2 3; do holds gate.pml -DKIND=$kind; done
breaks gate.pml -DKIND=2 -DNO_ATOMIC_RESERVE
breaks gate.pml -DKIND=1 -DNO_FENCE_ON_SETTLE
breaks gate.pml -DKIND=2 -DNO_FENCE_GROWTH
breaks gate.pml -DKIND=2 -DNO_CLAIM_CHECK
breaks gate.pml -DKIND=2 -DNO_RECOVERY_DECISION
breaks gate.pml -DKIND=3 -DNO_RECOVERY_DECISION
breaks gate.pml -DKIND=2 -DNO_WAIT_AFTER_NOT_FOUND
breaks gate.pml -DKIND=3 -DNO_START_RECORD

holds lanes.pml
breaks lanes.pml -DNO_HEAD_ONLY
breaks lanes.pml -DNO_FENCE_ON_SETTLE
breaks lanes.pml -DACK_WITHOUT_ANSWER
