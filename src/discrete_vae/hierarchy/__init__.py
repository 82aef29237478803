"""Layers of Gaussian latents below the binary ones."""
