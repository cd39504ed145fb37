"""Files of isentropic.onnx in onnxruntime beside torch and isentropic.torch, with their errors: python bench/python_onnx.py

Needs torch, onnx, onnxscript and onnxruntime. float32, one thread, wall-clock time; all times of a row come from one run, each
round in turn, medians. Errors are the largest of float64 rows at random, spread by 3, beside the library.
"""

import pathlib
import tempfile

import numpy as np
import onnxruntime
import torch
from timing import median_times

import isentropic
import isentropic.onnx
import isentropic.torch as et

MAPS = [
    ("softmax", {}),
    ("log_softmax", {}),
    ("logsumexp", {}),
    ("sparsemax", {}),
    ("entmax", {"alpha": 1.5}),
    ("entmax", {"alpha": 1.3}),
    ("top_k_softmax", {"k": 16}),
    ("top_p_softmax", {"p": 0.9}),
    ("min_p_softmax", {"p": 0.1}),
    ("taylor_softmax", {"order": 4}),
    ("sigsoftmax", {}),
    ("entropy_normalize", {"entropy": 1.5}),
    ("entropy_clip", {"min_entropy": 1.0, "max_entropy": 2.0}),
    ("perturb_max", {"noise": "gumbel"}),
]
NOISES = [("perturb_max", {"noise": noise}) for noise in ("normal", "logistic", "laplace", "exponential", "uniform")]


def session_of(function, example, folder):
    file = pathlib.Path(folder) / "map.onnx"
    sizes = ({0: torch.export.Dim("rows"), 1: torch.export.Dim("n")},)
    isentropic.onnx.export(function, (example,), file, dynamic_shapes=sizes)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(file), options)
    name = session.get_inputs()[0].name
    return lambda x: session.run(None, {name: x})[0]


def main():
    torch.set_num_threads(1)
    isentropic.set_num_threads(1)
    random = np.random.default_rng(0)
    print(f"onnxruntime {onnxruntime.__version__}, torch {torch.__version__}, kernels: {isentropic.simd_target()}\n")
    print("| map | error | us of 64 x 1024 in onnxruntime | in isentropic.torch | in torch |\n|---|---|---|---|---|")
    for name, params in MAPS + NOISES:
        quadratic = params.get("noise", "gumbel") != "gumbel"
        said = ", ".join(f"{key}={value}" for key, value in params.items())

        def function(x, name=name, params=params):
            return getattr(et, name)(x, **params)

        with tempfile.TemporaryDirectory() as folder:
            x = random.normal(size=(5, 40) if quadratic else (40, 300)) * 3
            wide = session_of(function, torch.zeros(2, 7, dtype=torch.float64), folder)
            off = float(np.abs(wide(x) - getattr(isentropic, name)(x, **params)).max())
            times = {}
            if not quadratic:
                narrow = session_of(function, torch.zeros(2, 7), folder)
                rows = random.normal(size=(64, 1024)).astype(np.float32)
                given = torch.from_numpy(rows)
                calls = {"file": lambda f=narrow, r=rows: f(r), "ours": lambda f=function, g=given: f(g)}
                theirs = {"softmax": torch.softmax, "log_softmax": torch.log_softmax, "logsumexp": torch.logsumexp}.get(name)
                if theirs is not None:
                    calls["torch"] = lambda f=theirs, g=given: f(g, -1)
                times = median_times(calls, 5, least=0.005)
        shown = [f"{1e6 * times[key]:.0f}" if key in times else "" for key in ("file", "ours", "torch")]
        print(f"| `{name}` {said} | {off:.1e} | {' | '.join(shown)} |", flush=True)


main()
