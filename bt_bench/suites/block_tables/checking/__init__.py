"""What a variant of block tables is checked for, beside the reference."""
