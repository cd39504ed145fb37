"""Models with isentropic's operations as ONNX files of standard operators, which any runtime takes."""

try:
    import onnxscript  # noqa: F401, what torch writes ONNX with
    import torch  # noqa: F401
except ImportError as error:
    raise ImportError("isentropic.onnx needs PyTorch, onnx and onnxscript: pip install torch onnx onnxscript") from error

from isentropic.onnx._export import OPSET, export

__all__ = ["OPSET", "export"]
