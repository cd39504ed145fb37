"""The operations as mathematics: torch's own operations, on any device. What is composed can be differentiated again, so these
are also where second derivatives come from; `derived` has these of what is not composed here."""

from entropic.torch.backends import linear_loss
from entropic.torch.backends.reference import attention, derived, losses, maps, measures, token_statistics

IMPLEMENTATIONS = {
    **maps.IMPLEMENTATIONS,
    **losses.IMPLEMENTATIONS,
    **measures.IMPLEMENTATIONS,
    **attention.IMPLEMENTATIONS,
    **token_statistics.IMPLEMENTATIONS,
    **linear_loss.REFERENCE,
}

# By what a derivative is differentiated again.
DIFFERENTIABLE = {**derived.of_maps(maps.FORWARD), **derived.of_losses(losses.LOSSES), **IMPLEMENTATIONS}
