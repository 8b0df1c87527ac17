"""The commands of `python -m lab`, a file for each group."""
