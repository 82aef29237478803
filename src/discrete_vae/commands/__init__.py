"""The verbs of the command line, one per file; each imports torch only when it runs."""
