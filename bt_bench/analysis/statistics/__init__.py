"""Statistics of samples, each with the source of its formula."""
