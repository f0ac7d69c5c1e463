"""The machine and its devices, what they are doing, and Triton's interpreter in place of one."""
