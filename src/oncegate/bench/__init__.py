"""Measurements: the same work done by the gate and by a plain baseline, side by side in one run."""
