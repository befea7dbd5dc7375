"""PyTorch that computes nothing, as far as benchmarks/compare_pytorch_gpu.py calls it."""

from unittest.mock import MagicMock

__version__ = "stand-in"
nn = MagicMock()
nn.Module = type("Module", (), {})
cuda = MagicMock()
cuda.get_device_name.return_value = "stand-in"
cuda.memory_reserved.return_value = cuda.max_memory_allocated.return_value = 1 << 20
backends = MagicMock()
backends.cudnn.version.return_value = 0


def __getattr__(_):
    return MagicMock()
