"""The exchange between the worker and its parent: tasks, arms, outcomes and failures."""
