"""Network blocks."""
