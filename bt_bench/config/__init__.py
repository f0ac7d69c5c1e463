"""Sweep configs: from YAML to validated cases."""
