"""Mutation: protecting lines of the safety core are taken out one by one, and a test must notice each."""
