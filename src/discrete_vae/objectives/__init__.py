"""The loss of training, its gradient, and importance weights."""
