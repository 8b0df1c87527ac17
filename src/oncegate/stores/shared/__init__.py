"""What both SQL ledgers share: which rows to prune, how writes are ordered, words in the log."""
