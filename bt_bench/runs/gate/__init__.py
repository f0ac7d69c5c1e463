"""The gate: two revisions measured side by side, round by round, until a verdict holds."""
