"""Block tables of others, timed beside ours: vLLM's own, from an installation or a wheel."""
