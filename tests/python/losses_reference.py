"""The losses from their definitions, in mpmath: for classes and matrices of targets, rows of finite scores and -inf."""

import mpmath
from mpmath import mpf

INF = mpf("inf")


def _softmax(x):
    most = max(x)
    terms = [mpmath.exp(v - most) if v > -INF else mpf(0) for v in x]
    total = mpmath.fsum(terms)
    return [t / total for t in terms]


def _logsumexp(x):
    most = max(x)
    return most + mpmath.log(mpmath.fsum(mpmath.exp(v - most) for v in x if v > -INF))


def _dot(q, x):
    """0 times -inf is 0."""
    return mpmath.fsum(a * b for a, b in zip(q, x, strict=True) if a != 0)


def _entmax(x, alpha):
    """The threshold by Newton's steps; every third step, and where one leads out of the bracket, halves the bracket."""
    if alpha == 1:
        return _softmax(x)
    b = alpha - 1
    most = max(x)
    z = [b * (v - most) if v > -INF else None for v in x]

    def masses(c):
        return [mpf(0) if u is None or (b > 0 and c + u <= 0) else (c + u) ** (1 / b) for u in z]

    n = sum(u is not None for u in z)
    low, high = sorted((mpf(1), mpf(n) ** -b))
    c = (low + high) / 2
    for step in range(480):
        p = masses(c)
        excess = mpmath.fsum(p) - 1
        if excess == 0:
            break
        if (excess > 0) == (b > 0):
            high = c
        else:
            low = c
        slope = mpmath.fsum(m / (b * (c + u)) for m, u in zip(p, z, strict=True) if m > 0)
        to = c - excess / slope
        if step % 3 == 2 or not low < to < high:
            to = (low + high) / 2
        if abs(to - c) <= mpmath.eps * c * 4 or to in (low, high):
            break
        c = to
    return p


def _kept(x, k):
    order = sorted(range(len(x)), key=lambda i: (-x[i], i))
    return set(order[:k])


def _cut(x, q, kept):
    inside = [v if i in kept else -INF for i, v in enumerate(x)]
    return _logsumexp(inside) - _dot(q, x), [a - b for a, b in zip(_softmax(inside), q, strict=True)]


def softmax_loss(x, q, label_smoothing=0):
    e, present = mpf(label_smoothing), [v > -INF for v in x]
    q = [(1 - e) * a + (e / sum(present) if there else 0) for a, there in zip(q, present, strict=True)]
    return _logsumexp(x) - _dot(q, x), [a - b for a, b in zip(_softmax(x), q, strict=True)]


def entmax_loss(x, q, alpha=1.5):
    alpha = mpf(alpha)
    p = _entmax(x, alpha)

    def entropy(p):
        if alpha == 1:
            return -mpmath.fsum(v * mpmath.log(v) for v in p if v > 0)
        # (1 - sum p^alpha) / (alpha (alpha - 1)) of a sum of 1.
        return mpmath.fsum(v * (1 - v ** (alpha - 1)) for v in p if v > 0) / (alpha * (alpha - 1))

    value = _dot(p, x) + entropy(p) - entropy(q) - _dot(q, x)
    return value, [a - b for a, b in zip(p, q, strict=True)]


def entropy_slope(p, alpha):
    """d/d alpha of (1 - sum p^alpha) / (alpha (alpha - 1)), by mpmath's differences; at 1 from both sides."""

    def entropy(a):
        if abs(a - 1) < mpf(10) ** -45:
            return -mpmath.fsum(v * mpmath.log(v) for v in p if v > 0)
        # As sum p (1 - p^(a - 1)): the same for a sum of 1, and no 0 divided by 0 where it is 1 but for rounding.
        return mpmath.fsum(v * (1 - v ** (a - 1)) for v in p if v > 0) / (a * (a - 1))

    return mpmath.diff(entropy, mpf(alpha), h=mpf(10) ** -15)


def sparsemax_loss(x, q):
    """By the sum over the support."""
    descending, total, tau, size = sorted((v for v in x if v > -INF), reverse=True), mpf(0), None, 0
    for k, v in enumerate(descending, start=1):
        total += v
        if 1 + k * v > total:
            tau, size = (total - 1) / k, k
    support = mpmath.fsum(v * v - tau * tau for v in descending[:size])
    value = mpmath.fsum(a * a for a in q) / 2 - _dot(q, x) + support / 2
    return value, [max(v - tau, mpf(0)) - a for v, a in zip(x, q, strict=True)]


def top_k_softmax_loss(x, q, k):
    return _cut(x, q, _kept(x, k))


def top_p_softmax_loss(x, q, p):
    p, mass, total = mpf(p), _softmax(x), mpf(0)
    order = sorted(range(len(x)), key=lambda i: (-x[i], i))
    kept = set()
    for i in order:
        if total >= p and p < 1:
            break
        kept.add(i)
        total += mass[i]
    return _cut(x, q, kept)


def smooth_accuracy_loss(x, q):
    p = _softmax(x)
    mean = _dot(q, p)
    return -mean, [-a * (b - mean) for a, b in zip(p, q, strict=True)]


def surrogate_loss(x, q):
    p = _softmax(x)
    return _dot(p, x) - _dot(q, x), [a - b for a, b in zip(p, q, strict=True)]


def margin_softmax_loss(x, q, kind="am", margin=None, scale=30):
    m = mpf({"am": 0.35, "arc": 0.5, "sphere": 4.0}[kind] if margin is None else margin)
    t = q.index(1)
    c = x[t]
    theta = mpmath.acos(c) if abs(c) <= 1 else None
    if kind == "am":
        psi, slope = c - m, mpf(1)
    elif kind == "arc":
        psi = mpmath.cos(theta + m) if theta <= mpmath.pi - m else -2 - mpmath.cos(theta + m)
        slope = mpmath.sin(theta + m) / mpmath.sin(theta) if abs(c) < 1 else None
        if slope is not None and theta > mpmath.pi - m:
            slope = -slope
    else:
        k = min(mpmath.floor(m * theta / mpmath.pi), m - 1)
        psi = (-1) ** int(k) * mpmath.cos(m * theta) - 2 * k
        slope = (-1) ** int(k) * m * mpmath.sin(m * theta) / mpmath.sin(theta) if abs(c) < 1 else m * m
    y = [scale * (psi if i == t else v) for i, v in enumerate(x)]
    p = _softmax(y)
    dx = [scale * (v - 1) * slope if i == t and slope is not None else scale * v for i, v in enumerate(p)]
    return _logsumexp(y) - y[t], dx


def multilabel_softmax_loss(x, labels):
    negative = [v for v, a in zip(x, labels, strict=True) if not a and v > -INF]
    positive = [-v for v, a in zip(x, labels, strict=True) if a]
    sums = [1 + mpmath.fsum(mpmath.exp(v) for v in part) for part in (negative, positive)]
    dx = [
        -mpmath.exp(-v) / sums[1] if a else mpmath.exp(v) / sums[0] if v > -INF else mpf(0)
        for v, a in zip(x, labels, strict=True)
    ]
    return mpmath.log(sums[0]) + mpmath.log(sums[1]), dx


def _forward_kl(x, teacher, beta):
    s, t, total = _softmax(x), _softmax(teacher), _logsumexp(x) - _logsumexp(teacher)
    kl = mpmath.fsum(a * (v - w + total) for a, v, w in zip(t, teacher, x, strict=True) if a > 0)
    return kl, [b - a for a, b in zip(t, s, strict=True)]


def _reverse_kl(x, teacher, beta):
    s, total = _softmax(x), _logsumexp(x) - _logsumexp(teacher)
    if any(b > 0 and v == -INF for b, v in zip(s, teacher, strict=True)):
        return INF, [mpf(0)] * len(x)
    ratios = [w - v - total if b > 0 else mpf(0) for b, v, w in zip(s, teacher, x, strict=True)]
    kl = mpmath.fsum(b * r for b, r in zip(s, ratios, strict=True))
    return kl, [b * (r - kl) for b, r in zip(s, ratios, strict=True)]


def _total_variation(x, teacher, beta):
    s, t = _softmax(x), _softmax(teacher)
    signs = [mpmath.sign(b - a) for a, b in zip(t, s, strict=True)]
    mean = mpmath.fsum(b * sign for b, sign in zip(s, signs, strict=True))
    value = mpmath.fsum(abs(a - b) for a, b in zip(t, s, strict=True)) / 2
    return value, [b * (sign - mean) / 2 for b, sign in zip(s, signs, strict=True)]


def distillation_loss(x, teacher, temperature=1, divergence="forward_kl", beta=None):
    temperature, beta = mpf(temperature), mpf("0.5") if beta is None else mpf(beta)
    x, teacher = [v / temperature for v in x], [v / temperature for v in teacher]
    by_name = {"forward_kl": _forward_kl, "reverse_kl": _reverse_kl, "jsd": jsd_loss, "total_variation": _total_variation}
    value, dx = by_name[divergence](x, teacher, beta)
    return temperature**2 * value, [temperature * d for d in dx]


def sparse_distillation_loss(x, indices, log_probs, temperature=1, divergence="forward_kl", beta=None, tail="bin"):
    listed = [(int(i), mpf(float(v))) for i, v in zip(indices, log_probs, strict=True) if i >= 0]
    student, teacher = [x[i] for i, _ in listed], [v for _, v in listed]
    rest = [i for i in range(len(x)) if i not in {i for i, _ in listed}] if tail == "bin" else []
    if rest:
        left = 1 - mpmath.fsum(mpmath.exp(v) for v in teacher)
        student.append(_logsumexp([x[i] for i in rest]))
        teacher.append(mpmath.log(left) if left > 0 else -INF)
    value, of_bins = distillation_loss(student, teacher, temperature, divergence, beta)
    dx = [mpf(0)] * len(x)
    for (i, _), d in zip(listed, of_bins, strict=False):
        dx[i] = d
    for i, share in zip(rest, _softmax([x[i] for i in rest]) if rest else [], strict=True):
        dx[i] = of_bins[-1] * share
    return value, dx


def jsd_loss(x, teacher, beta=0.5):
    beta = mpf(beta)
    s, t = _softmax(x), _softmax(teacher)
    m = [beta * a + (1 - beta) * b for a, b in zip(t, s, strict=True)]

    def kl(p):
        return mpmath.fsum(a * mpmath.log(a / b) for a, b in zip(p, m, strict=True) if a > 0)

    own = kl(s)
    dx = [(1 - beta) * a * (mpmath.log(a / b) - own) if a > 0 else mpf(0) for a, b in zip(s, m, strict=True)]
    return beta * kl(t) + (1 - beta) * own, dx
