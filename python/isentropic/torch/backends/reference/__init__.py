"""The operations as mathematics: torch's own operations, on any device. Compositions can be differentiated again, so second
derivatives come from here too; `derived` has those of operations without a composition."""

from isentropic.torch.backends.reference import attention, derived, losses, maps, measures, token_statistics

IMPLEMENTATIONS = {
    **maps.IMPLEMENTATIONS,
    **losses.IMPLEMENTATIONS,
    **measures.IMPLEMENTATIONS,
    **attention.IMPLEMENTATIONS,
    **token_statistics.IMPLEMENTATIONS,
}

# The functions by which derivatives are differentiated again.
DIFFERENTIABLE = {**derived.of_maps(maps.FORWARD), **derived.of_losses(losses.LOSSES), **IMPLEMENTATIONS}
