"""Drivers perform what flows yield: for threads, for tasks, and for callbacks of the HTTP fast path."""
