"""The data types of the gate: rounds, recordings, censuses."""
