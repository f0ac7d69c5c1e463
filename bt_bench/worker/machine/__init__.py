"""The machine and its devices, their activity, and Triton's interpreter in place of a device."""
