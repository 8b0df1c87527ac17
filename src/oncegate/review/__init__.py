"""What people decide: held and quarantined entries, duplicates, bulk decisions, and the words for them."""
