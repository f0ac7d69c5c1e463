"""vLLM's own preparation of a batch, as a variant."""
