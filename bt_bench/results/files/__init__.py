"""The files of results: folders, journals, reading, writing, and messages about damaged ones."""
