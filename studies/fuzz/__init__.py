"""Random steps on a GPU, each compared with an oracle that shares no code with the kernels."""
