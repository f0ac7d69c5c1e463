"""A variant per file: the class `Variant`, a `BatchInputOperations`."""
