"""The report of one run."""
