"""Steps of vLLM's runner with the plugin and without, compared, and timed."""
