"""Entry points: the functions and loops that a framework calls with an event."""
