"""Recorded incidents: arrivals as they came, played against a gate and against what stood there before."""
