"""What is true of PyTorch and its companions, as data: the only place that names their symbols."""
