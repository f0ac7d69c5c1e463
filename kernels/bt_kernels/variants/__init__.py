"""One variant a file: each defines a subclass of `BlockTableOperations` called `Variant`."""
