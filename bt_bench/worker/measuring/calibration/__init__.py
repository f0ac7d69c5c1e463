"""What the device and the host cost by themselves."""
