"""Page indices in CSR form, as paged attention kernels read them."""
