"""One file for each variant."""
