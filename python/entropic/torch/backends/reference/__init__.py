"""The operations as mathematics: torch's own operations, on any device. What is composed can be differentiated again, so these
are also where second derivatives come from."""

from entropic.torch.backends import linear_loss
from entropic.torch.backends.reference import attention, losses, maps, measures, token_statistics

IMPLEMENTATIONS = {
    **maps.IMPLEMENTATIONS,
    **losses.IMPLEMENTATIONS,
    **measures.IMPLEMENTATIONS,
    **attention.IMPLEMENTATIONS,
    **token_statistics.IMPLEMENTATIONS,
    **linear_loss.REFERENCE,
}
