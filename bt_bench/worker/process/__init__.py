"""The worker process: its start and replacement, its requests, and the execution of its tasks."""
