"""The version, read by the build backend and by the package."""

__version__ = "0.1.0"
