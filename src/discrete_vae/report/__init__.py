"""One page about a run that can be sent to anybody."""
