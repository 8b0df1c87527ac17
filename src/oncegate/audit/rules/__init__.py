"""The rules OG001 to OG014: each reads the paths of a handler and yields findings."""
