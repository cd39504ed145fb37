"""What is done to the entries of a part, in torch's operations: the order of numbers as integers, exact sums, exponentials.

No result depends on an entry's place or on the other parts. On a CPU torch's operations take some rows at a time, in memory
that stays in its cache; elsewhere all rows at once. torch's comparisons are slow on a CPU, so the usual ways have few.
"""

import math

import torch

INF = math.inf
MAGIC = 1.5 * 2.0**52  # added to a number below 2^51 in size, the last bits of the sum are the number, rounded to an integer
MAGIC_BITS = 0x4338 << 48
_LARGEST, _WORD = 0x7FFF_FFFF_FFFF_FFFF, 0xFFFF_FFFF


def _folded(bits, dtype):
    return torch.where(bits >= 0, bits, bits ^ (_LARGEST if dtype is torch.float64 else _LARGEST >> 32))


def key_of(x):
    """float32 or float64 as int64 in the order of the numbers; that of NaN is the largest."""
    x = torch.where(x.isnan(), math.nan, x + 0.0)  # one bit pattern of NaN, and no -0
    return _folded(x.view(torch.int64) if x.dtype is torch.float64 else x.view(torch.int32).long(), x.dtype)


def of_key(key, dtype=torch.float64):
    bits = _folded(key, dtype)
    return bits.view(dtype) if dtype is torch.float64 else bits.int().view(dtype)


def signed(number):
    """An integer modulo 2^64, as int64 has it."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def anywhere(condition):
    """Whether it is true anywhere. The number of rounds, or of steps between them, depends on it, so the host must know it. It
    reads no other numbers of tensors that are not in its own memory."""
    return bool(condition.any())


def times_power(x, exponent):
    """x 2^exponent, where that is a number, also if the power is none."""
    return torch.ldexp(torch.ldexp(x, exponent // 2), exponent - exponent // 2)


def blocks(x):
    """Slices of rows."""
    step = max(1, len(x)) if not x.is_cpu else max(1, (1 << 16) // max(1, x.shape[1]))
    return [slice(begin, begin + step) for begin in range(0, len(x), step)]


def scratch(x, dtype=torch.float64):
    """Memory for a block."""
    return x.new_empty((min(blocks(x)[0].stop, len(x)) if len(x) else 0, x.shape[1]), dtype=dtype)


class Fixed:
    """Exact sums of terms below 2 in size, for rows of n entries: integers with so many fractional bits that n of them do
    not overflow. A second word has the rest of each term."""

    def __init__(self, n, words):
        self.words, self.bits = words, min(50, 61 - (max(n, 2) - 1).bit_length())
        self.scale = 2.0**self.bits

    def of(self, terms, unit=1.0):
        """The words of the sums along the last axis, of float64 whose memory may be used; times a power of 2."""
        found = []
        for word in range(self.words):
            terms.mul_(self.scale if word else unit * self.scale)
            whole = terms.add(MAGIC) if word + 1 < self.words else terms.add_(MAGIC)
            found.append(whole.view(torch.int64).sum(-1) - signed(whole.shape[-1] * MAGIC_BITS))
            if word + 1 < self.words:
                terms.sub_(whole.sub_(MAGIC))
        return torch.stack(found, -1)

    def total(self, words):
        """The sums of what all parts have sent: the last axis becomes float64 of size 1."""
        if self.words == 1:
            return words.double() / self.scale
        first, second = words[..., :1], words[..., 1:]
        # The second word gets the bits of the first one that are below the 53 bits of a number.
        upper = first & ~0x3FF
        rest = (first - upper).double() / self.scale
        return upper.double() / self.scale + (rest + second.double() / self.scale / self.scale)


def without_distribution(top):
    return top.isnan() | (top == -INF)


def relative(x, top, temperature=None, out=None):
    """(x - top) / temperature, 0 at the top: in x's type, or in float64 if there is a temperature. Halves, because the
    difference of finite scores may leave the range, and 1 / temperature too. Beside +inf, all others are as -inf."""
    if temperature is None:
        z = torch.sub(x, top.to(x.dtype), out=out)
    else:
        z = (0.5 * x.double() if out is None else out.copy_(x).mul_(0.5)).sub_(0.5 * top).div_(0.5 * temperature)
    return torch.nan_to_num(z, nan=0.0, posinf=INF, neginf=-INF, out=z)


def moments(x, top, temperature, fixed, powers):
    """The words of sum e z^k, z = (x - top) / temperature, e = exp(z), for k below powers: shape (rows, powers, words)."""
    found = x.new_zeros((len(x), powers, fixed.words), dtype=torch.int64)
    wide, kind = scratch(x), x.dtype if temperature is None else torch.float64
    two = scratch(x, kind), scratch(x, kind)
    for some in blocks(x):
        own = x[some]
        z, e = (one[: len(own)] for one in two)
        relative(own, top[some], None if temperature is None else temperature[some], out=z)
        torch.exp(z, out=e)
        for k in range(powers):
            if k == 1:
                z.clamp_(min=-1e4)  # where e is 0, the product is
            if k:
                e.mul_(z)
            found[some, k] = fixed.of(wide[: len(own)].copy_(e))
    return found


def weighted(x, top, temperature, constant, slope=None):
    """e (constant + slope z) in x's type, with numbers of each row."""
    y, kind = torch.empty_like(x), x.dtype if temperature is None else torch.float64
    constant, slope = (None if one is None else one.to(kind) for one in (constant, slope))
    two = [scratch(x, kind) for _ in range(1 + (slope is not None) + (kind is not x.dtype))]
    for some in blocks(x):
        own = x[some]
        z = relative(own, top[some], None if temperature is None else temperature[some], out=two[0][: len(own)])
        if slope is None:
            e = torch.exp(z, out=y[some] if kind is x.dtype else z).mul_(constant[some])
        else:
            e = torch.exp(z, out=y[some] if kind is x.dtype else two[1][: len(own)])
            e.mul_(z.clamp_(min=-1e4).mul_(slope[some]).add_(constant[some]))
        if kind is not x.dtype:
            y[some].copy_(e)
    return y


def leading(x, k, ordered=True):
    """(the k largest scores of each row, from the largest down, their columns): NaN before all, and if they are `ordered`, of
    equal ones the first. Fewer, if there are fewer."""
    rows, cols = x.shape
    size, columns = 32, None

    def largest(x, k):
        k = min(k, x.shape[1])
        if not ordered:
            return x.topk(k)
        if x.dtype is torch.float32:  # a number with its place is an integer, and no two are equal
            keys = (key_of(x) << 32) + (_WORD - torch.arange(x.shape[1], device=x.device))
            at = _WORD - (keys.topk(k).values & _WORD)
            return x.gather(1, at), at
        values, at = x.sort(dim=-1, descending=True, stable=True)
        return values[:, :k], at[:, :k]

    if cols > 2 * size * k:  # they are in the k blocks with the largest maxima, of equal ones the first
        padded = torch.nn.functional.pad(x, (0, -cols % size), value=-INF) if cols % size else x
        padded = padded.view(rows, -1, size)
        columns = largest(padded.amax(-1), k)[1].sort(dim=-1).values
        x = padded.gather(1, columns[:, :, None].expand(-1, -1, size)).flatten(1)
        columns = (columns[:, :, None] * size + torch.arange(size, device=x.device)).flatten(1)
    values, at = largest(x, k)
    return values, at if columns is None else columns.gather(1, at)
