"""Where people already work: scikit-learn, dimod, torch distributions, model hubs."""
