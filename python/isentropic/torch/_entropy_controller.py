"""EntropyController: a coefficient of an entropy bonus that follows a target."""

import math

from isentropic import _checks
from isentropic._descriptions import documented
from isentropic.torch._arguments import Tensor


@documented
class EntropyController:
    """The coefficient of an entropy bonus, adjusted so that the entropy reaches a target.

    After each step of training, ``update(entropy)`` moves the coefficient by rate (target - entropy), within [low, high]: up
    while the entropy is below the target, so that the bonus, -coefficient * entropy in the loss, raises it.

    Parameters
    ----------
    target : float
        The entropy to reach, in nats: for a policy, its mean over the tokens.
    coefficient : float, default 0.0
        The coefficient before the first update, within [low, high].
    rate : float, default 1e-3
        How far it moves in a step for each nat that is missing; above 0.
    low, high : float, defaults 0.0 and 1.0
        Its range. A negative low may also push the entropy down.

    Examples
    --------
    >>> controller = isentropic.torch.EntropyController(2.0, rate=0.1)
    >>> controller.update(1.5)
    0.05
    """

    coefficient: float

    def __init__(self, target: float, *, coefficient=0.0, rate=1e-3, low=0.0, high=1.0):
        self._take({"target": target, "coefficient": coefficient, "rate": rate, "low": low, "high": high})

    def _take(self, numbers):
        name = type(self).__name__
        numbers = {key: _checks.number(name, key, value) for key, value in numbers.items()}
        for key, value in numbers.items():
            if not math.isfinite(value):
                raise ValueError(f"{name}: {key} must be finite, got {value}")
        rate, coefficient, low, high = (numbers[key] for key in ("rate", "coefficient", "low", "high"))
        if rate <= 0:
            raise ValueError(f"{name}: rate must be above 0, got {rate}")
        if not low <= coefficient <= high:
            raise ValueError(f"{name}: coefficient must be from low, {low}, to high, {high}, got {coefficient}")
        self.target, self.coefficient, self.rate, self.low, self.high = numbers["target"], coefficient, rate, low, high

    def update(self, entropy: float | Tensor) -> float:
        """Moves the coefficient by the entropy of a step, a number or a tensor with one, and returns it."""
        name = f"{type(self).__name__}.update"
        if isinstance(entropy, Tensor):
            if entropy.numel() != 1:
                shape = tuple(entropy.shape)
                raise ValueError(f"{name}: entropy must be one number, such as the mean over tokens, got shape {shape}")
            entropy = entropy.detach().item()
        entropy = _checks.number(name, "entropy", entropy)
        if not math.isfinite(entropy):
            raise ValueError(f"{name}: entropy must be finite, got {entropy}")
        moved = self.coefficient + self.rate * (self.target - entropy)
        self.coefficient = min(max(moved, self.low), self.high)
        return self.coefficient

    def state_dict(self) -> dict[str, float]:
        """All its numbers, for a checkpoint."""
        return {key: getattr(self, key) for key in ("target", "coefficient", "rate", "low", "high")}

    def load_state_dict(self, state) -> None:
        """Takes the numbers of a state_dict."""
        known = list(self.state_dict())
        if sorted(state) != sorted(known):
            raise ValueError(f"{type(self).__name__}: state must have {', '.join(known)}, got {', '.join(state)}")
        self._take({key: state[key] for key in known})

    def __repr__(self):
        numbers = ", ".join(f"{key}={value}" for key, value in self.state_dict().items())
        return f"{type(self).__name__}({numbers})"
