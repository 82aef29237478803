"""The verbs of the command line, one a file; each imports torch only when it runs."""
