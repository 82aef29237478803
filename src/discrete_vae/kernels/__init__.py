"""Compiled loops, the operations of a step recorded and repeated, and what runs the sweeps of chains."""
