"""The path from the results of two or more sides to a verdict on every metric of every case."""
