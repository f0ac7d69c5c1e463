"""vLLM's block tables and ours, which get the calls of an engine side by side."""
