"""What pytest leaves out: the GPU kernels where there is no Triton to read them."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("triton") else ["src/uncurse/deep/kernels.py"]
