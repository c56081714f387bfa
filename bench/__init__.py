"""Paired measurements of core against eager PyTorch and torch.compile."""
