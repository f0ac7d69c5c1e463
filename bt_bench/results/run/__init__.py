"""The data types of a run: cases, samples, plans, reasons, calibrations."""
