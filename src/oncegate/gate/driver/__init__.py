"""Drivers perform what flows yield: for threads and for tasks."""
