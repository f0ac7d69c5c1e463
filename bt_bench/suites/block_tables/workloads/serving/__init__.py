"""From a trace of requests to the steps of a serving engine."""
