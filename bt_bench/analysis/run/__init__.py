"""What one run shows: savings against its baseline, budgets, one method checked by another."""
