"""Steps of a chain over logits that know the text so far, or draw: functions of rows of scores, -inf absent.

    ("epsilon", e)                          keeps tokens with a probability of at least e
    ("eta", e)                              keeps tokens with at least min(e, sqrt(e) exp(-entropy))
    ("top_n_sigma", n)                      keeps scores within n standard deviations of the largest
    ("xtc", (probability, threshold))       with this probability, removes all that reach the threshold but the least likely
    ("dry", {"multiplier": 0.8, ...})       subtracts multiplier base^(length - allowed_length) from tokens that repeat the text
    ("mirostat", (surprise, rate))          keeps tokens whose surprise -log p is below a bound, adjusted after each draw

All but xtc keep the most likely token. Sources: Hewitt et al. 2022 (epsilon, eta), Tang et al. 2024 (top_n_sigma), Basu et al.
2021 (mirostat, in its second version); XTC and DRY as llama.cpp has them.
"""

import math

import numpy as np

from isentropic import _checks
from isentropic._numpy._sampling import sample


def is_one(step):
    return isinstance(step, (tuple, list)) and len(step) == 2 and step[0] in _STEPS


def make(step, seed, draws):
    name, value = step
    return _STEPS[name](value, seed, draws)


def _number(name, value, low, high, words):
    number = _checks.number("steps", name, value)
    if not low < number <= high:
        raise ValueError(f"steps: {name} must be {words}, got {number:g}")
    return number


def _pair(name, value, parts):
    if not (isinstance(value, (tuple, list)) and len(value) == 2):
        raise TypeError(f"steps: {name} must have a pair {parts}, got {value!r}")
    return value


def _tokens(name, value):
    """An array of tokens. A number below 0, which some models have for a token that they lack, is never in a text."""
    if isinstance(value, (str, bytes, dict)) or not hasattr(value, "__iter__"):
        raise TypeError(f"steps: {name} must be a list of tokens, got {value!r}")
    tokens = [_checks.integer("steps", f"each of {name}", token) for token in value]
    for token in tokens:
        if not -(1 << 63) <= token < 1 << 63:
            raise ValueError(f"steps: each of {name} must be below 2**63 and at least -2**63, got {token}")
    return np.array(tokens, np.int64)


def _log_softmax(scores):
    with np.errstate(invalid="ignore", divide="ignore"):
        x = scores.astype(np.float64)
        x = x - x.max(-1, keepdims=True)
        return x - np.log(np.exp(x).sum(-1, keepdims=True))


def _kept(scores, log_p, bound):
    """Scores whose log_p reaches a bound for each row; the most likely one is always kept."""
    bound = np.minimum(bound, log_p.max(-1, keepdims=True))
    return np.where(log_p < bound, np.float32(-np.inf), scores)


class Epsilon:
    def __init__(self, value, seed, draws):
        self.bound = math.log(_number("epsilon", value, 0, 1, "above 0 and at most 1"))

    def __call__(self, scores, positions, streams, tokens):
        return _kept(scores, _log_softmax(scores), self.bound)


class Eta:
    def __init__(self, value, seed, draws):
        self.bound = math.log(_number("eta", value, 0, 1, "above 0 and at most 1"))

    def __call__(self, scores, positions, streams, tokens):
        log_p = _log_softmax(scores)
        entropy = -(np.exp(log_p) * np.where(log_p > -np.inf, log_p, 0)).sum(-1, keepdims=True)
        return _kept(scores, log_p, np.minimum(self.bound, self.bound / 2 - entropy))


class TopNSigma:
    def __init__(self, value, seed, draws):
        self.n = _number("top_n_sigma", value, 0, math.inf, "above 0")

    def __call__(self, scores, positions, streams, tokens):
        there = scores > -np.inf
        x = scores.astype(np.float64)
        with np.errstate(invalid="ignore", divide="ignore"):
            count = there.sum(-1, keepdims=True)
            mean = np.where(there, x, 0).sum(-1, keepdims=True) / count
            sigma = np.sqrt((np.where(there, x - mean, 0) ** 2).sum(-1, keepdims=True) / count)
            return _kept(scores, x, x.max(-1, keepdims=True) - self.n * sigma)


class Xtc:
    def __init__(self, value, seed, draws):
        probability, threshold = _pair("xtc", value, "(probability, threshold)")
        self.probability = _checks.number("steps", "xtc's probability", probability)
        if not 0 <= self.probability <= 1:
            raise ValueError(f"steps: xtc's probability must be in [0, 1], got {self.probability:g}")
        self.bound = math.log(_number("xtc's threshold", threshold, 0, 1, "above 0 and at most 1"))
        if not draws:
            raise ValueError("steps: xtc draws whether it acts: give a seed")
        self.seed = seed ^ 0x585443  # whether the step acts is independent of the drawn token

    def __call__(self, scores, positions, streams, tokens):
        log_p = _log_softmax(scores)
        top = log_p >= self.bound
        least = np.where(top, log_p, np.inf).min(-1, keepdims=True)
        first = np.argmax(top & (log_p == least), -1)  # of equal ones, the one with the lower index
        kept = ~top
        kept[np.arange(len(scores)), first] = True
        act = self._acts(positions, streams) & (top.sum(-1) > 1)
        return np.where(kept | ~act[:, None], scores, np.float32(-np.inf))

    def _acts(self, positions, streams):
        with np.errstate(divide="ignore"):
            sides = np.log([[self.probability, 1 - self.probability]])
        draws = [
            sample(sides, seed=self.seed, stream=np.asarray(stream).reshape(1), position=int(position))
            for stream, position in zip(np.asarray(streams), positions, strict=True)
        ]
        return np.concatenate(draws) == 0


class Dry:
    def __init__(self, value, seed, draws):
        given = {"multiplier": 0.8, "base": 1.75, "allowed_length": 2, "breakers": (), "last": None}
        if not isinstance(value, dict) or not set(value) <= set(given):
            raise TypeError(f"steps: dry must have a dict of {', '.join(given)}, got {value!r}")
        given |= value
        self.multiplier = _number("dry's multiplier", given["multiplier"], 0, math.inf, "above 0")
        self.base = _number("dry's base", given["base"], 0, math.inf, "above 0")
        self.allowed = _checks.integer("steps", "dry's allowed_length", given["allowed_length"])
        if self.allowed < 1:
            raise ValueError(f"steps: dry's allowed_length must be at least 1, got {self.allowed}")
        self.breakers = _tokens("dry's breakers", given["breakers"])
        self.last = given["last"]
        if self.last is not None:
            if isinstance(self.last, bool):  # "the last only" is more likely meant than 1
                raise TypeError(f"steps: dry's last must be None or an integer, got {self.last}")
            self.last = _checks.integer("steps", "dry's last", self.last, "None or an integer")
            if self.last < 1:
                raise ValueError(f"steps: dry's last must be None or at least 1, got {self.last}")

    def __call__(self, scores, positions, streams, tokens):
        if tokens is None:
            raise ValueError("steps: dry needs the tokens so far")
        scores = scores.copy()
        for row, text, length in zip(scores, tokens, positions, strict=True):
            for token, amount in self.penalties(text[-int(length) :] if length else (), len(row)):
                row[token] -= amount
        return scores

    def penalties(self, text, count):
        """(token, what is subtracted from its score) for tokens below `count` after this text."""
        text = np.asarray(text, np.int64)
        text = text if self.last is None else text[-self.last :]
        for token, repeated in self._repeats(text).items():
            if repeated >= self.allowed and 0 <= token < count:
                yield token, min(self.multiplier * self.base ** min(repeated - self.allowed, 700), 1e30)

    def _repeats(self, text):
        """For each token that once followed the text's ending: the length of that ending in tokens."""
        ends = np.flatnonzero(np.isin(text, self.breakers))
        most = len(text) - 1 - ends[-1] if len(ends) else len(text)
        lengths = _common_suffixes(text)
        found = {}
        for at in np.flatnonzero(lengths[:-1] > 0):
            token, length = int(text[at + 1]), min(int(lengths[at]), int(most))
            if length > found.get(token, 0) and token not in self.breakers:
                found[token] = length
        return found


def _common_suffixes(text):
    """For each place the number of tokens up to it that equal the end of the text: Gusfield's Z, from the end."""
    reverse, n = text[::-1].tolist(), len(text)
    z = [0] * n
    left = right = 0
    for at in range(1, n):
        length = min(right - at, z[at - left]) if at < right else 0
        while at + length < n and reverse[length] == reverse[at + length]:
            length += 1
        z[at] = length
        if at + length > right:
            left, right = at, at + length
    return np.asarray(z[::-1], np.int64)


class Mirostat:
    """Its bound starts at twice the wanted surprise, and starts anew for each text."""

    def __init__(self, value, seed, draws):
        surprise, rate = _pair("mirostat", value, "(surprise, rate)")
        self.surprise = _number("mirostat's surprise", surprise, 0, math.inf, "above 0")
        self.rate = _number("mirostat's rate", rate, 0, math.inf, "above 0")
        if not draws:
            raise ValueError("steps: mirostat draws: give a seed")
        self.bounds, self.next = np.empty(0), np.empty(0, np.int64)

    def __call__(self, scores, positions, streams, tokens):
        if len(self.next) != len(scores):
            self.bounds, self.next = np.empty(len(scores)), np.full(len(scores), -1)
        self.bounds[self.next != positions] = 2 * self.surprise
        self.next = positions + 1
        return _kept(scores, _log_softmax(scores), -self.bounds[:, None])

    def learn(self, scores, index):
        rows = np.flatnonzero(index >= 0)
        surprise = -_log_softmax(scores[rows])[np.arange(len(rows)), index[rows]]
        self.bounds[rows] -= self.rate * (surprise - self.surprise)


_STEPS = {"epsilon": Epsilon, "eta": Eta, "top_n_sigma": TopNSigma, "xtc": Xtc, "dry": Dry, "mirostat": Mirostat}
