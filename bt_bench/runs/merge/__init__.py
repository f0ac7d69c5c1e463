"""`bt-bench merge`: the result of a whole sweep from the runs of its shards."""
