"""The suites that come with bt-bench. No other part of the harness imports them by name."""
