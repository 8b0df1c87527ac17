"""Background jobs, each `run_once() -> Report`: recovery, pruning, scans, accepted events."""
