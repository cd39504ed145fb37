"""Chains of steps as logits processors of Hugging Face transformers, for ``model.generate(logits_processor=[...])``.

``generate`` applies its own temperature, top_k, top_p and the like after processors that it is given. They would change the
distribution again: switch them off by ``do_sample=True, temperature=1.0, top_k=0, top_p=1.0`` (top_k is 50 unless said).
"""

try:
    import torch
    from transformers import LogitsProcessor
except ImportError as error:
    raise ImportError("entropic.transformers needs transformers and PyTorch: pip install transformers torch") from error

from entropic._chain import Chain

__all__ = ["EntropyLogitsProcessor", "SamplerLogitsProcessor"]


class SamplerLogitsProcessor(LogitsProcessor):
    """A chain of steps.

    Parameters
    ----------
    steps : list of (name, value)
        As entropic.Sampler has them, in the order applied.
    seed : int in [0, 2**64) or None, default None
        None: logits become the log-probabilities that the chain leaves, and generate draws. A seed: the token is drawn here,
        and the others get -inf, so that generate has no choice, also with do_sample=False. Its noise is of (seed, stream,
        length of the text so far, token): a text is continued the same way in any batch of its length.
    stream : int or array of integers, default 0
        Row r of the batch draws from stream + r; an array gives each row its own.
    """

    supports_continuous_batching = True

    def __init__(self, steps, *, seed=None, stream=0):
        self._chain = Chain(steps, seed, stream)

    def __call__(self, input_ids, scores):
        rows = scores.detach().to(device="cpu", dtype=torch.float32).contiguous()
        logits = torch.from_numpy(self._chain(rows.numpy(), input_ids.shape[-1]))
        return logits.to(device=scores.device, dtype=scores.dtype)


class EntropyLogitsProcessor(SamplerLogitsProcessor):
    """The temperature, for each step of each text its own, that gives the next token's distribution an entropy.

    Parameters
    ----------
    entropy : float or None
        In nats; where it is out of reach, the nearest. Exactly one of entropy and perplexity is given.
    perplexity : float or None
        exp(entropy).
    seed, stream
        As in SamplerLogitsProcessor.
    """

    def __init__(self, entropy=None, *, perplexity=None, seed=None, stream=0):
        super().__init__([("entropy", _target_entropy(entropy, perplexity))], seed=seed, stream=stream)


def _target_entropy(entropy, perplexity):
    if (entropy is None) == (perplexity is None):
        raise ValueError("EntropyLogitsProcessor: exactly one of entropy and perplexity must be given")
    if entropy is not None:
        return entropy
    if not perplexity >= 1:
        raise ValueError(f"EntropyLogitsProcessor: perplexity must be at least 1, got {perplexity}")
    return float(torch.log(torch.tensor(perplexity, dtype=torch.float64)))
