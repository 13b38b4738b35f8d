"""Tasks: data sets, who holds which part of them, and tasks of your own. What needs PyTorch is not imported here."""
