"""Examples of modules that need what is not installed everywhere are not collected where it is missing."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("triton") else ["src/discrete_vae/kernels/gibbs_triton.py"]
