"""core makes unmodified PyTorch programs faster."""
