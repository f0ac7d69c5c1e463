"""`bt-bench profile`: one file per tool."""
