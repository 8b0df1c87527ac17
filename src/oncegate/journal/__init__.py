"""The journal: log records under signed Merkle heads, proofs from them, and erasure that keeps them."""
