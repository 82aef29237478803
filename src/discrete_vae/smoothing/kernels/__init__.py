"""Compiled passes over draws."""
