"""The crash matrix: workers struck at every crash point, in every manner, on both ledgers.

`python -m lab.crash_matrix` plays all of it and writes its table; the tests play a selection.
"""
