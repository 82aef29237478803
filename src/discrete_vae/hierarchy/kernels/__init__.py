"""Compiled passes over Gaussian layers."""
