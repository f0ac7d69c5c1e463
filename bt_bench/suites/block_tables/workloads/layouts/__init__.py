"""Layouts of tables that engines have: presets by model, and files that an engine printed."""
