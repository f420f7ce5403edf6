"""What pytest leaves out: modules whose library is not installed."""

from importlib.util import find_spec

MODULES = {"triton": "src/uncurse/deep/kernels.py", "mlflow": "src/uncurse/mlflow.py"}
collect_ignore = [path for library, path in MODULES.items() if not find_spec(library)]
