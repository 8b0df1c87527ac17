"""The gate: admit an event, run its effect once, commit its outcome with the business write."""
