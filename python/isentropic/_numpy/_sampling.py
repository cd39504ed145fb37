"""Sampling: reproducible draws from distributions over scores, and chains of steps that change the distribution."""

import math

import numpy as np

import isentropic._core as _core
from isentropic import _checks
from isentropic._descriptions import documented
from isentropic._numpy import _containers, _convert, _device, _layout

STEPS = {description["name"]: description for description in _core.sampling_steps()}


@documented
def sample(x, *, size=None, replace=True, temperature=1.0, seed, stream=0, position=0, axis=-1):
    """
    replace: False: the indices of a row differ, as if drawn one after the other without replacement. They are the indices of
        the `size` largest sums of score and noise at one position, in descending order, and -1 if no score above -inf is left.
    Returns: int64 indices along axis, of the kind of x, in its shape without axis, and with size as last axis where given; a
        NumPy number where no axis is left. -1 for a row without a distribution (with NaN, or without a score above -inf).
    Raises: A parameter is out of its range, x has no axis, stream does not fit.
    Notes: If there are scores of +inf, only these are drawn, with equal probabilities.
    >>> x = [[0.0, 1.0, 2.0], [0.0, 1.0, 2.0]]
    >>> isentropic.sample(x, seed=1, size=4).shape
    (2, 4)
    >>> sorted(isentropic.sample(x, seed=1, size=3, replace=False)[0].tolist())
    [0, 1, 2]
    """
    name = "sample"
    replace = _checks.flag(name, "replace", replace)
    if _containers.is_container(x):
        if not replace:
            raise TypeError(f"{name}: replace must be True for an array of {type(x).__module__.partition('.')[0]}")
        options = {"temperature": temperature, "seed": seed}
        return _lazy_draws(name, lambda x, **given: sample(x, **given, **options), x, size, stream, position, axis)
    if _device.holds(x):
        parameters = {"temperature": temperature, "replace": replace, **key_of(name, seed, position, size)}
        return _device.draws_of(name, "sample", parameters, x, axis, _device_stream(name, stream), size, "indices")
    rows = _layout.Along(name, "x", x, axis)
    indices, count = _indices(name, rows, size)
    _core.sample(
        rows.values,
        indices,
        rows.axis,
        (temperature, replace),
        natural(name, "seed", seed),
        streams_of_rows(name, rows, stream),
        position_of(name, position, count if replace else 1),
    )
    return _shaped(rows, x, indices, size)


@documented
def gumbel_softmax(x, *, temperature=1.0, hard=False, seed, stream=0, axis=-1):
    """
        p = softmax((x + G) / T), G the noise of sample at position 0

    hard: Give 1 at the index that sample(x, seed=seed, stream=stream) draws, 0 elsewhere.
    seed: As in sample.
    stream: As in sample.
    Returns: Of the kind, shape and dtype of x; float64 if x is a list or has integers or bools. A row with NaN, or without a
        score above -inf, is NaN.
    Raises: A parameter is out of its range, x has no axis, stream does not fit.
    Notes: isentropic.torch.gumbel_softmax is differentiable, with a straight-through gradient if hard.
    >>> isentropic.gumbel_softmax([0.0, 1.0, -np.inf], hard=True, seed=3).sum()
    np.float64(1.0)
    """
    name = "gumbel_softmax"
    if _containers.is_container(x):
        streams = _lazy_streams(name, x, stream, axis)
        options = {"temperature": temperature, "hard": hard, "seed": seed}

        def of_blocks(x, stream, _):
            return gumbel_softmax(x, stream=stream, **options)

        return _containers.along(name, of_blocks, [(x, True), (streams, False)], [True], axis)
    if _device.holds(x):
        parameters = {"temperature": temperature, "hard": _checks.flag(name, "hard", hard), **key_of(name, seed)}
        return _device.draws_of(name, name, parameters, x, axis, _device_stream(name, stream), None, "y")
    rows = _layout.Along(name, "x", x, axis)
    p = np.empty_like(rows.values)
    _core.gumbel_softmax(
        rows.values, p, rows.axis, (temperature, hard), natural(name, "seed", seed), streams_of_rows(name, rows, stream), 0
    )
    return rows.back(p)


@documented
def gumbel_noise(shape, *, seed, stream=0, position=0, dtype=np.float64):
    """
    The noise of sample: sample draws the index of the largest x / temperature + noise, with the noise of its position.

    shape (int or tuple of int): Rows of noise run along the last axis.
    stream: Row r has stream + r; an array that broadcasts to shape without the last axis gives each row its own.
    dtype (numpy.float64 or numpy.float32): Of the result.
    Returns: -log(-log u), u of (seed, stream, position, index).
    >>> x = np.array([0.0, 1.0, 2.0])
    >>> bool((x + isentropic.gumbel_noise(3, seed=1)).argmax() == isentropic.sample(x, seed=1))
    True
    """
    name = "gumbel_noise"
    dtype = np.dtype(dtype)
    if dtype not in (np.float64, np.float32):
        raise TypeError(f"{name}: dtype must be float64 or float32, got {dtype}")
    rows = _layout.Along(name, "shape", np.empty(shape_of(name, shape), dtype), -1)
    noise = np.empty_like(rows.values)
    streams = streams_of_rows(name, rows, stream)
    _core.gumbel_noise(noise, rows.axis, natural(name, "seed", seed), streams, position_of(name, position, 1))
    return noise


def shape_of(function, shape):
    """The shape of rows, with at least one axis."""
    sizes = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    if not sizes:
        raise ValueError(f"{function}: shape must have at least one axis, got ()")
    return tuple(natural(function, "shape", size, 1 << 62) for size in sizes)


def _lazy_draws(name, draw, x, size, stream, position, axis):
    """draw(x, stream=, position=) for an array of Dask or xarray."""
    if size is not None:
        if not _containers.is_lazy(x):
            raise TypeError(f"{name}: size must be None for an array of xarray; give position for further draws")
        import dask.array as da

        count = natural(name, "size", size, 1 << 62)
        first = position_of(name, position, count)
        draws = [_lazy_draws(name, draw, x, None, stream, first + i, axis) for i in range(count)]
        return da.stack(draws, -1) if draws else _lazy_draws(name, draw, x, None, stream, first, axis)[..., np.newaxis][..., :0]
    streams = _lazy_streams(name, x, stream, axis)

    def of_blocks(x, stream, _):
        return draw(x, stream=stream, position=position)

    return _containers.along(name, of_blocks, [(x, True), (streams, False)], [False], axis)


def _lazy_streams(name, x, stream, axis):
    """The stream of each row of an array of Dask or xarray, counted as for a NumPy array."""
    axis = x.get_axis_num(axis) if isinstance(axis, str) else axis % x.ndim
    lead = [size for d, size in enumerate(x.shape) if d != axis]
    if any(math.isnan(size) for size in lead):
        raise ValueError(
            f"{name}: x must have chunks of known size, because draws depend on the number of a row; "
            f"call x.compute_chunk_sizes() first"
        )
    if np.ndim(stream) == 0:
        stream = np.arange(math.prod(lead), dtype=np.uint64) + np.uint64(natural(name, "stream", stream))
    return np.asarray(stream).reshape(lead) if np.size(stream) == math.prod(lead) else np.broadcast_to(stream, lead)


@documented
class Sampler:
    """A chain of steps that change a distribution, and draws from the result.

    Each step acts on the normalised result of the steps before it; the first acts on softmax(x). So ("temperature", 2.0)
    before ("top_p", 0.9) flattens first, and more indices are kept. After ("top_p", 0.9) it flattens the kept ones. Each step
    keeps at least one index.

    Parameters
    ----------
    steps : list of (name, value)
        In the order applied, of

        ("temperature", T)              p^(1/T), T > 0
        ("top_k", k)                    the k most likely, k >= 1
        ("top_p", p)                    the fewest of the most likely that reach the mass p, 0 < p <= 1
        ("min_p", p)                    what is at least p times as likely as the most likely, 0 < p <= 1
        ("typical_p", p)                those of surprise nearest to the entropy, the fewest that reach the mass p, 0 < p <= 1
        ("entropy", H)                  the temperature that gives an entropy of H nats, or the nearest that can be reached
        ("entropy_clip", (low, high))   if the entropy is outside, the nearer end; None leaves an end open
        ("epsilon", e)                  what has at least the probability e, 0 < e <= 1
        ("eta", e)                      what has at least the probability min(e, sqrt(e) exp(-entropy)), 0 < e <= 1
        ("top_n_sigma", n)              scores within n standard deviations of the largest, n > 0
        ("top_h", a)                    as many of the most likely as have, renormalised, an entropy of at most a
                                        times that of all, 0 < a <= 1
        ("p_less", None)                what has at least the probability that two draws are equal, sum p^2
        ("xtc", (probability, threshold))   with this probability, removes all that reach the threshold but the least likely
        ("penalties", {"repetition": 1.0, "presence": 0.0, "frequency": 0.0, "last": 64})
                                        lowers the scores of the last tokens of the text; last 0: none, -1: all
        ("dry", {"multiplier": 0.8, "base": 1.75, "allowed_length": 2, "breakers": [], "last": -1})
                                        lowers the scores of tokens that would repeat a sequence of the text
        ("mirostat", (surprise, rate))  what has a surprise -log p below a bound, which each draw adjusts, so that the mean
                                        surprise is as wanted, in nats; the last step

        Of equal scores at a cut the lower index stays.
    seed : int in [0, 2**64), default 0
        The same seed, stream and position give the same draw in any batch.

    Notes
    -----
    A draw does not depend on earlier draws. For the next token of a growing text give the next position: at the same position
    the noise is the same again, and the draws are not independent. Only mirostat keeps something, the bound of each stream; it
    starts anew if the position is not the one after the last draw.

    Examples
    --------
    >>> chain = isentropic.Sampler([("temperature", 0.8), ("top_k", 2)], seed=1)
    >>> chain.probs([0.0, 1.0, 2.0]).round(3)
    array([0.   , 0.223, 0.777])
    >>> int(chain.sample([0.0, 1.0, 2.0], position=5)) in (1, 2)
    True
    >>> index, p = chain.sample([0.0, 1.0, 2.0], position=5, return_probs=True)
    >>> isentropic.Sampler([("penalties", {"presence": 1.0})]).probs([0.0, 0.0], tokens=[0]).round(3)
    array([0.269, 0.731])
    """

    __slots__ = ("_bounds", "_core", "_seed", "_steps", "_text", "adjusts", "reads_text")

    def __init__(self, steps, *, seed=0):
        self._steps = tuple(_step(step) for step in _list(steps))
        self._seed = natural("Sampler", "seed", seed)
        try:
            self._core = _core.Sampler([(name, _values(name, value)) for name, value in self.steps], self.seed)
        except (TypeError, ValueError) as error:  # of a step
            raise type(error)("Sampler: " + str(error).removeprefix("Sampler: ")) from None
        described = [STEPS[name] for name, _ in self.steps]
        self.reads_text = any(description["reads_text"] for description in described)
        self.adjusts = bool(described) and described[-1]["name"] == "mirostat"
        self._bounds = {}  # of each stream the next position and the bound
        self._text = None  # of the first row that was drawn last: its stream, position and text

    @property
    def steps(self):
        """The steps, a tuple of pairs (name, value)."""
        return self._steps

    @property
    def seed(self):
        """The seed of the draws."""
        return self._seed

    def __repr__(self):
        return f"Sampler({list(self.steps)!r}, seed={self.seed})"

    def __reduce__(self):
        return _sampler, (self.steps, self.seed)

    @documented
    def probs(self, x, *, tokens=None, axis=-1):
        """
        The distribution that sample draws from. Steps that depend on the draw (mirostat, and xtc with a probability between 0
        and 1) are refused.

        tokens: The text so far of each row, for penalties and dry: integers along a new last axis, after x's axes without axis;
            numbers below 0 are padding.
        Returns: Of the kind, shape and dtype of x; float64 if x is a list or has integers or bools. A row with NaN, or without
            a score above -inf, is NaN.
        """
        name = "Sampler.probs"
        if _containers.is_container(x):
            _alone(name, tokens)
            return _containers.along(name, lambda x, _: self.probs(x), [(x, True)], [True], axis)
        if _device.holds(x):
            _alone(name, tokens)
            return _device.draws_of(name, "sampler_probs", {"steps": self._named()}, x, axis, None, None, "y")
        rows = _layout.Along(name, "x", x, axis)
        p = np.empty_like(rows.values)
        self._core.probs(rows.values, p, texts_of_rows(name, rows, tokens), rows.axis)
        return rows.back(p)

    @documented
    def sample(self, x, *, size=None, stream=0, position=0, tokens=None, return_probs=False, axis=-1):
        """
        Indices drawn from probs(x), as the function sample draws them from softmax.

        size: The number of draws from each row, at position, position + 1, and so on, along a new last axis. None: one draw,
            without it.
        stream: Row r has stream + r; an array that broadcasts to x's shape without axis gives each row its own.
        position: Counts successive draws from a stream. For a growing text it must grow too: it is an error if tokens continue
            those of the last call at the same position and stream.
        tokens: As in probs.
        return_probs: Also return the distribution that was drawn from; with size only if no step depends on the draw.
        Returns: int64 indices along axis, -1 for a row that has no distribution; of the kind of x, in its shape without axis,
            and with size as last axis where given; a NumPy number where no axis is left. With return_probs (indices, p), p like
            x.
        """
        name = "Sampler.sample"
        return_probs = _checks.flag(name, "return_probs", return_probs)
        if _containers.is_container(x):
            _alone(name, tokens, return_probs, self.adjusts)
            return _lazy_draws(name, self.sample, x, size, stream, position, axis)
        if _device.holds(x):
            _alone(name, tokens, return_probs)
            parameters = {"steps": self._named(), **key_of(name, self.seed, position, size)}
            return _device.draws_of(name, "sampler_sample", parameters, x, axis, _device_stream(name, stream), size, "indices")
        rows = _layout.Along(name, "x", x, axis)
        indices, count = _indices(name, rows, size)
        streams = streams_of_rows(name, rows, stream)
        position = position_of(name, position, count)
        p = np.empty_like(rows.values) if return_probs else None
        bounds = self._bounds_at(streams, position) if self.adjusts else None
        tokens = texts_of_rows(name, rows, tokens)
        if tokens is not None and tokens.size:
            self._refuse_growing(name, int(streams[0]), position, tokens[0][tokens[0] >= 0])
        self._core.sample(rows.values, indices, tokens, bounds, p, rows.axis, streams, position)
        if self.adjusts:
            self._keep(streams, position + count, bounds)
        drawn = _shaped(rows, x, indices, size)
        return (drawn, rows.back(p)) if return_probs else drawn

    def _refuse_growing(self, name, stream, position, text):
        """Refuses a text that has grown since the last call, at the same position: its noise would be the same again."""
        if self._text is not None:
            before = self._text[2]
            grown = self._text[:2] == (stream, position) and 0 < len(before) < len(text)
            if grown and np.array_equal(text[: len(before)], before):
                following = position + len(text) - len(before)
                raise ValueError(
                    f"{name}: position must grow with the text: stream {stream} was drawn from at position {position}, where "
                    f"its text had {len(before)} tokens, and now has {len(text)}; pass position={following}"
                )
        self._text = stream, position, text.copy()

    def _bounds_at(self, streams, position):
        kept = (self._bounds.get(stream, (None, math.nan)) for stream in streams.tolist())
        return np.array([bound if following == position else math.nan for following, bound in kept])

    def _keep(self, streams, following, bounds):
        for stream, bound in zip(streams.tolist(), bounds.tolist(), strict=True):
            self._bounds.pop(stream, None)  # the last ones are kept
            self._bounds[stream] = following, bound
        for stream in list(self._bounds)[: max(len(self._bounds) - (1 << 16), 0)]:
            del self._bounds[stream]

    def _named(self):
        """The steps as the C interface takes them."""
        found = []
        for name, value in self.steps:
            params = [param["name"] for param in STEPS[name]["params"]]
            found.append({"name": name, **dict(zip(params, _values(name, value), strict=True))})
        return found


def _sampler(steps, seed):
    return Sampler(steps, seed=seed)


def _list(steps):
    if isinstance(steps, (str, dict)) or not hasattr(steps, "__iter__"):
        raise TypeError(f'Sampler: steps must be a list of (name, value) pairs such as ("top_k", 50), got {steps!r}')
    return list(steps)


def _step(step):
    if not (isinstance(step, (tuple, list)) and len(step) == 2 and isinstance(step[0], str)):
        raise TypeError(f'Sampler: a step must be a pair of name and value such as ("top_k", 50), got {step!r}')
    name, value = step
    if isinstance(value, dict):
        value = dict(value)  # the caller's may change
    return name, tuple(value) if isinstance(value, list) else value


def _values(name, value):
    """The values of a step's parameters: a single one, a tuple of all, or a dict of some, with None for a default."""
    if name not in STEPS:
        return (value,)  # _core says which there are
    params = STEPS[name]["params"]
    names = [param["name"] for param in params]
    if not params:
        if value is not None:
            raise TypeError(f"Sampler: {name} has no parameters: its value must be None, got {value!r}")
        return ()
    if isinstance(value, dict):
        for unknown in [one for one in value if one not in names][:1]:
            raise TypeError(f"Sampler: {name} has no parameter {unknown!r}; it has {', '.join(names)}")
        values = [value.get(one) for one in names]
    elif len(params) == 1:
        return (value,)
    elif isinstance(value, (tuple, list)) and len(value) == len(params):
        values = value
    else:
        kind = "a pair" if len(params) == 2 else "a dict, or a tuple"
        raise TypeError(f"Sampler: {name} must have {kind} ({', '.join(names)}), got {value!r}")
    # _core's messages must not name a number for an open bound.
    values = [param["default"] if one is None else one for param, one in zip(params, values, strict=True)]
    for param, one in zip(params, values, strict=True):
        if one is None:
            raise TypeError(f"Sampler: {name} must have a value for {param['name']}, got {value!r}")
    return tuple(values)


def _alone(function, tokens=None, return_probs=False, adjusts=False):
    """Refuses what only arrays in this machine's memory have."""
    for name, given in (("tokens", tokens is not None), ("return_probs", return_probs), ("mirostat", adjusts)):
        if given:
            raise TypeError(f"{function}: {name} is not supported for arrays of Dask or xarray and in a GPU's memory")


def texts_of_rows(function, rows, tokens):
    """A row of tokens for each row of x; lists of different lengths get padding."""
    if tokens is None:
        return None
    if isinstance(tokens, (list, tuple)) and tokens and not any(np.ndim(one) == 0 for one in tokens):
        longest = max(map(len, tokens))
        if any(len(one) != longest for one in tokens):
            tokens = [[*one, *[-1] * (longest - len(one))] for one in tokens]
    given = np.empty(np.shape(tokens), np.int64) if np.size(tokens) == 0 else integers(function, "tokens", tokens)
    shape = (*rows.lead, *given.shape[-1:])
    try:
        if given.ndim > len(shape):
            raise ValueError
        spread = np.broadcast_to(given, shape)
    except ValueError:
        which = f"x's shape without axis {rows.axis}, and then tokens"
        raise _checks.misfit(function, "tokens", shape, which, given, "an array of integers") from None
    return np.ascontiguousarray(spread, np.int64).reshape(math.prod(rows.lead), -1 if spread.size else shape[-1])


def natural(function, name, value, below=1 << 64):
    number = _checks.integer(function, name, value)
    if not 0 <= number < below:
        limit = f"2**{below.bit_length() - 1}" if below > 1 << 32 and below.bit_count() == 1 else below
        raise ValueError(f"{function}: {name} must be at least 0 and below {limit}, got {number}")
    return number


def signed(number):
    """The signed number of the same 64 bits, as the C interface and torch's schemas have it."""
    return number - (1 << 64) if number >= 1 << 63 else number


def position_of(function, position, count):
    return natural(function, "position", position, (1 << 64) - count + 1 if count else 1 << 64)


def key_of(function, seed, position=0, size=None):
    """Seed and position as signed numbers of 64 bits, which parameters of the C interface are."""
    count = 1 if size is None else natural(function, "size", size, 1 << 62)
    numbers = {"seed": natural(function, "seed", seed), "position": position_of(function, position, count)}
    return {name: signed(number) for name, number in numbers.items()}


def _device_stream(function, stream):
    """The first row's stream, a signed number of 64 bits, or an array of one for each row."""
    if isinstance(stream, (np.ndarray, list, tuple)) or hasattr(stream, "__dlpack__"):
        return stream
    return signed(natural(function, "stream", stream))


def integers(function, name, given):
    """An array of integers; of a list NumPy makes floats if it has integers on both sides of 2**63."""
    array = np.asarray(given)
    if array.dtype.kind in "fO" and isinstance(given, (list, tuple)):
        each = np.array(given, dtype=object)
        if all(isinstance(one, (int, np.integer)) and not isinstance(one, bool) for one in each.flat):
            return np.array([natural(function, name, one) for one in each.flat], np.uint64).reshape(each.shape)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{function}: {name} must be of integers, got dtype {array.dtype}")
    return array


def streams_of_rows(function, rows, stream, which=None):
    """A stream for each row."""
    count = math.prod(rows.lead)
    if not isinstance(stream, (np.ndarray, list, tuple)) and not hasattr(stream, "__dlpack__"):
        first = natural(function, "stream", stream)
        return np.uint64(first) + np.arange(count, dtype=np.uint64)  # modulo 2**64
    given = integers(function, "stream", stream)
    if np.issubdtype(given.dtype, np.signedinteger) and given.size and given.min() < 0:
        raise ValueError(f"{function}: stream must be at least 0, got {given.min()}")
    if given.ndim == 0:
        return streams_of_rows(function, rows, int(given), which)
    if given.ndim == 1 and given.size == count:
        return np.ascontiguousarray(given.astype(np.uint64))
    try:
        return np.ascontiguousarray(np.broadcast_to(given.astype(np.uint64), rows.lead)).reshape(-1)
    except ValueError:
        which = which or f"x's shape without axis {rows.axis}"
        raise _checks.misfit(function, "stream", rows.lead, which, given, "an integer or an array") from None


def _indices(function, rows, size):
    """Room for the draws, and their number for each row."""
    count = 1 if size is None else natural(function, "size", size, 1 << 62)
    return np.empty((math.prod(rows.lead), count), np.int64), count


def _shaped(rows, x, indices, size):
    shape = rows.lead if size is None else (*rows.lead, indices.shape[1])
    return _convert.number_or_array(_convert.same_kind(x, indices.reshape(shape)))
