"""Names of the modules. Needs no torch: python/stubs.py reads them where there is none."""

_OTHERS = {"jsd_loss": "JSDLoss", "logsumexp": "LogSumExp", "sigsoftmax": "SigSoftmax"}


def class_name(function):
    """The torch.nn module of a function: "top_k_softmax" has TopKSoftmax."""
    return _OTHERS.get(function, function.title().replace("_", ""))
