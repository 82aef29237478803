"""Approximating posteriors over the binary latents."""
