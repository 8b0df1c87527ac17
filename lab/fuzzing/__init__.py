"""Fuzzing: every parser that reads the input of strangers, with atheris."""
