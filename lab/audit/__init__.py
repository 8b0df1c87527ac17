"""The audit's labelled corpus: what it finds there, and how fast it is."""
