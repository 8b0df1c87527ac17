"""oncegate inside other frameworks; each package needs its framework installed."""
