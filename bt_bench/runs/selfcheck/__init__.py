"""How often the gate finds slowdowns and how often it is wrong, by simulation."""
