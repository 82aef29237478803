"""Campaigns fork processes and look at their signals and limits, which Windows does not have."""

import os

collect_ignore_glob = ["*.py"] if os.name == "nt" else []
