"""Faults on purpose: what the demo and the crash tests run the gate against."""
