"""From the results of two sides or more to a verdict on every metric of every case."""
