"""Compiled passes over the activations of networks."""
