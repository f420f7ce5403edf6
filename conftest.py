"""What pytest leaves out, modules whose library is not installed; and the device and the timings of all tests."""

import os
import sys

# Before NumPy is loaded: on small matrices the threads of BLAS wait for each other, which costs ten times their work.
# So do those of OpenMP in PyTorch, LightGBM and XGBoost, while other test processes use the same cores.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

from importlib import import_module
from importlib.util import find_spec

import pytest

MODULES = {"triton": "lab/src/uncurse_lab/deep/kernels.py", "mlflow": "src/uncurse/mlflow.py"}
collect_ignore = [path for library, path in MODULES.items() if not find_spec(library)]


@pytest.fixture(autouse=True, scope="session")
def short_timings():
    """`verify` measures latencies for a hundredth of a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(import_module("uncurse.serving.verify"), "_SECONDS", 0.01)
        yield


@pytest.fixture(autouse=True, scope="module")
def processor():
    """Networks are trained on the CPU, here and in other processes, as on a machine without a GPU.

    The tests of the GPU's kernels have a fixture of the same name, which does nothing.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        if "torch" in sys.modules:  # which may have found the GPU before
            patch.setattr("torch.cuda.is_available", lambda: False)
        yield


@pytest.fixture
def one_torch_thread():
    """Two test processes share two cores; and sums in another order are other sums."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def one_process(monkeypatch):
    """Experiments run in this process, as on one core: others would load the libraries again."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0}, raising=False)
