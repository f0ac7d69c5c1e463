"""The suite of block tables: which blocks of the paged KV cache each request owns."""
