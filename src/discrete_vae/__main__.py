"""python -m discrete_vae is the dvae command."""

from discrete_vae.cli import entry_point

if __name__ == "__main__":
    entry_point()
