"""`bt-bench gate`: one file per mode."""
