"""The worker's process: starts and replaces it, hands it tasks, and carries these out in it."""
