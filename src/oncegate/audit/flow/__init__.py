"""What a function does, in order: events on paths through branches, loops, errors and calls."""
