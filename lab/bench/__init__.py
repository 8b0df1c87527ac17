"""Benchmarks beside peers and limits of the machine. What `oncegate bench gate` needs is in the wheel."""
