"""The distribution with given moments, from multipliers that nearly give them: Newton's steps, through which derivatives go."""


def refined(xp, features, moments, prior, multipliers, steps=2):
    """(p, multipliers) after some of Newton's steps. At the solution the first has its derivatives in moments, prior and
    features, the second also those of these."""
    there = prior > 0
    logs = xp.where(there, xp.log(xp.where(there, prior, 1.0)), -xp.inf)
    low, high = xp.min(features, axis=0), xp.max(features, axis=0)
    unit = xp.where(high > low, high - low, xp.ones_like(low))  # a scale, which changes no solution
    scaled = (features - moments[..., None, :]) / unit
    turned = multipliers * unit
    for step in range(steps + 1):
        exponents = xp.matmul(scaled, turned[..., None])[..., 0] + logs
        mass = xp.exp(exponents - xp.max(exponents, axis=-1, keepdims=True))
        p = mass / xp.sum(mass, axis=-1, keepdims=True)
        if step == steps:
            return p, turned / unit
        mean = xp.matmul(p[..., None, :], scaled)
        away = scaled - mean
        spread = xp.matmul(xp.matrix_transpose(away * p[..., None]), away)
        turned = turned - xp.matmul(xp.linalg.pinv(spread), xp.matrix_transpose(mean))[..., 0]
