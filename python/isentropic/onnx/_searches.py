"""The maps that search for a number, as functions of ONNX with a Loop: along the last axis, in float64.

Each is a search for the root of a rising function f of a number t for each row: Newton's method inside a bracket, which is
halved if a step would leave it or is more than half the one before. A row that has converged does not change. The state of a
step is one tensor, (low, high, t, step, steps made), because onnxscript 0.7 mixes up several tensors, in an order that depends
on the hashes of their names. Scores z are at most 0, and 0 for the largest. torch sees operators instead of the searches, and
only needs their shapes.
"""

import torch
from onnxscript import DOUBLE, script
from onnxscript import opset18 as op

# The value of absent scores: far below all others, and its square does not overflow.
ABSENT = -(2.0**400)


@script(default_opset=op)
def Searched(state: DOUBLE[...], f: DOUBLE[...], slope: DOUBLE[...], enough: DOUBLE) -> DOUBLE[...]:
    """The next state, from f and its slope at t; the searches share it."""
    low, high, t, before, steps = op.Split(state, num_outputs=5, axis=-1)
    none = op.CastLike(0.0, f)
    two = op.CastLike(2.0, f)
    below = op.Where(f < none, t, low)
    above = op.Where(f < none, high, t)
    newton = t - f / slope
    inside = op.And(op.And(newton > below, newton < above), op.Abs(two * f) < op.Abs(before * slope))
    step = op.Where(inside, newton, (below + above) / two)
    after = op.Where(op.Abs(f) <= enough, t, step)
    return op.Concat(below, above, after, op.Abs(after - t), steps + op.CastLike(1.0, f), axis=-1)


@script(default_opset=op)
def EntmaxOf(z: DOUBLE[...], b: DOUBLE[...]) -> DOUBLE[...]:
    """p_i = m (1 + b z_i m^-b)^(1/b), b = alpha - 1, with sum 1; t = log m, where m is the largest p_i."""
    last = op.Constant(value_ints=[-1])
    none = op.CastLike(0.0, z)
    one = op.CastLike(1.0, z)
    two = op.CastLike(2.0, z)
    enough = op.CastLike(1e-14, z)
    flat = op.Abs(b) < op.CastLike(1e-9, z)
    divisor = op.Where(flat, one, b)
    count = op.CastLike(op.Gather(op.Shape(z), last), z)
    high = op.ReduceMax(z, last) * none
    low = high - op.Log(count)
    t = low / two
    before = op.Log(count) + high
    steps = none * before
    state = op.Concat(low, high, t, before, steps, axis=-1)
    going = op.ReduceMax(before, keepdims=0) > none
    while going:
        t_ = op.Gather(state, op.Constant(value_ints=[2]), axis=-1)
        w = op.Where(z < none, z * op.Exp(none - b * t_), none)  # if alpha is large, the power may be infinite
        v = op.Max(b * w, none - one)
        u = one + v
        # log(1 + v), accurate to the last digit even for a small v.
        log = op.Where(u == one, v, v * op.Log(u) / op.Where(u == one, one, u - one))
        p = op.Exp(t_ + op.Where(flat, w, log / divisor))
        total = op.ReduceSum(p, last)
        f = op.Log(total)
        slope = op.ReduceSum(op.Where(u > none, p / op.Where(u > none, u, one), none), last) / total
        state = Searched(state, f, slope, enough)
        moved = op.ReduceMax(op.Gather(state, op.Constant(value_ints=[3]), axis=-1), keepdims=0)
        made = op.ReduceMax(op.Gather(state, op.Constant(value_ints=[4]), axis=-1), keepdims=0)
        going = op.And(moved > enough, made < op.CastLike(200.0, z))
    t = op.Gather(state, op.Constant(value_ints=[2]), axis=-1)
    v = op.Max(b * op.Where(z < none, z * op.Exp(none - b * t), none), none - one)
    u = one + v
    log = op.Where(u == one, v, v * op.Log(u) / op.Where(u == one, one, u - one))
    p = op.Exp(t + op.Where(flat, z, log / divisor))
    return p / op.ReduceSum(p, last)


@script(default_opset=op)
def SoftmaxOfEntropy(z: DOUBLE[...], target: DOUBLE[...]) -> DOUBLE[...]:
    """softmax(gamma z) with an entropy in its reach; t = log gamma. The least present score is -1."""
    last = op.Constant(value_ints=[-1])
    none = op.CastLike(0.0, z)
    one = op.CastLike(1.0, z)
    two = op.CastLike(2.0, z)
    enough = op.CastLike(2e-14, z)
    # Below this exp(y) is 0; the bound keeps y exp(y) from being NaN.
    least = op.CastLike(-800.0, z)
    # At the lower end p is uniform to the last digit; at the upper end only the largest scores are left.
    low = target * none - op.CastLike(25.0, z)
    nearest = op.ReduceMax(op.Where(z < none, z, none - one), last)
    high = op.Min(op.Log(least / nearest), op.CastLike(700.0, z)) + target * none
    there_are = z >= none - one
    count = op.ReduceSum(op.CastLike(there_are, z), last)
    mean = op.ReduceSum(op.Where(there_are, z, none), last) / count
    off = op.Where(there_are, z - mean, none)
    variance = op.ReduceSum(off * off, last) / count
    # As if the scores were normally distributed.
    guess = op.Log(op.Max(two * (op.Log(count) - target), op.CastLike(1e-18, z)) / variance) / two
    t = op.Min(op.Max(guess, low), high)
    before = high - low
    steps = none * before
    state = op.Concat(low, high, t, before, steps, axis=-1)
    going = op.ReduceMax(before, keepdims=0) > none
    while going:
        t_ = op.Gather(state, op.Constant(value_ints=[2]), axis=-1)
        y = op.Max(z * op.Exp(t_), least)
        e = op.Exp(y)
        total = op.ReduceSum(e, last)
        p = e / total
        mean = op.ReduceSum(p * y, last)
        f = target - (op.Log(total) - mean)
        off = y - mean
        slope = op.ReduceSum(p * (off * off), last)
        state = Searched(state, f, slope, enough)
        moved = op.ReduceMax(op.Gather(state, op.Constant(value_ints=[3]), axis=-1), keepdims=0)
        made = op.ReduceMax(op.Gather(state, op.Constant(value_ints=[4]), axis=-1), keepdims=0)
        going = op.And(moved > op.CastLike(1e-15, z), made < op.CastLike(200.0, z))
    t = op.Gather(state, op.Constant(value_ints=[2]), axis=-1)
    e = op.Exp(op.Max(z * op.Exp(t), least))
    return e / op.ReduceSum(e, last)


_library = torch.library.Library("isentropic_onnx", "DEF")
for _name in ("entmax_of(Tensor z, Tensor b)", "softmax_of_entropy(Tensor z, Tensor target)"):
    _library.define(f"{_name} -> Tensor")
    torch.library.register_fake(f"isentropic_onnx::{_name[: _name.index('(')]}", lambda z, _: torch.empty_like(z), lib=_library)

entmax_of = torch.ops.isentropic_onnx.entmax_of.default
softmax_of_entropy = torch.ops.isentropic_onnx.softmax_of_entropy.default
TRANSLATIONS = {entmax_of: EntmaxOf, softmax_of_entropy: SoftmaxOfEntropy}
