"""Reports: from results to tables, Markdown and the terminal."""
