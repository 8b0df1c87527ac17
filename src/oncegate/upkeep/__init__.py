"""Caretakers: each is `run_once() -> Report`, looked after by whoever wants it looked after."""
