"""Pictures, one a file: model or run directory -> table -> picture."""
