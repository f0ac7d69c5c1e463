"""What the gate finds, and how often it is wrong: simulated gates over recorded rounds."""
