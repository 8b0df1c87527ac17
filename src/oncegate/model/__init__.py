"""The pure part of oncegate: values and rules, without I/O, clock or randomness of their own."""
