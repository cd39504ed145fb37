"""Speculative decoding: a model's draft against the scores of another."""

from types import SimpleNamespace

import numpy as np

from isentropic._descriptions import documented
from isentropic._generated import log_softmax
from isentropic._numpy import _convert
from isentropic._numpy._sampling import gumbel_noise, natural, position_of, sample, streams_of_rows
from isentropic.formulas import sampling as formulas


@documented
def speculative_sample(draft, target, tokens, *, seed, stream=0, position=0):
    """
        accept token i of a draft with probability min(1, p_i / q_i); then draw from max(p - q, 0), or p if all are accepted

    How many of k drafted tokens the target accepts, and the token that follows. The text has the distribution of the target
    (Leviathan, Kalman, Matias, ICML 2023).

    draft: Scores of shape (..., k, n) from which the tokens were drawn, after all steps. None: they were drawn by sample, or a
        Sampler, with this seed and stream, token i at position + i. Then those tokens are accepted that the target would have
        drawn with this noise, and the text is that of the target alone.
    target: Scores of shape (..., k + 1, n): at each drafted token, and after the last.
    tokens: The drafted tokens, integers of shape (..., k).
    stream: Row r of the leading axes has stream + r; an array gives each row its own.
    position: Of the first drafted token.
    Returns: (accepted, token): how many tokens are accepted, from the first on, and the next one; -1 where the target's row has
        no distribution.
    >>> accepted, token = isentropic.speculative_sample(np.zeros((4, 9)), np.zeros((5, 9)), [1, 2, 3, 4], seed=1)
    >>> int(accepted)  # all, as the distributions are equal
    4
    """
    name = "speculative_sample"
    kind = target
    target = _scores(name, "target", target)
    draft = None if draft is None else _scores(name, "draft", draft)
    given = np.asarray(tokens) if np.size(tokens) else np.empty(np.shape(tokens), np.int64)
    formulas.check(name, given, None if draft is None else draft.shape, target.shape)
    seed, lead = natural(name, "seed", seed), target.shape[:-2]
    which = "target's shape without its last two axes"
    stream = streams_of_rows(name, SimpleNamespace(lead=lead), stream, which).reshape(lead)
    position = position_of(name, position, target.shape[-2] if draft is None else 1)

    def noise(seed, count):
        return gumbel_noise((*lead, count), seed=seed, stream=stream, position=position)

    def draw(scores, seed, offset):
        return sample(scores, seed=seed, stream=stream, position=position + offset)

    functions = formulas.Functions(np, np.take_along_axis, lambda x: log_softmax(x.astype(np.float64)), noise, draw)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = formulas.speculative(functions, draft, target, given.astype(np.int64), seed)
    return tuple(_convert.number_or_array(_convert.same_kind(kind, np.asarray(one))) for one in found)


def _scores(function, name, x):
    return _convert.to_floats(function, name, _convert.to_numpy(function, name, x, bfloat16=True))[0]
