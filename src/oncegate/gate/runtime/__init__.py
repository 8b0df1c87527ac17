"""What one process keeps while it works: live claims, leases, recent outcomes, circuits, statistics."""
