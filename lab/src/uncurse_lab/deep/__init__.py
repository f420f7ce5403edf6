"""The click models of the paper, DLRM and xDeepFM, trained as replicas side by side."""

from uncurse.optional import needing

with needing("deep"):
    from .click_stack import train_replicas
    from .clicks import Clicks
    from .models import DLRM, XDeepFM

__all__ = ["DLRM", "Clicks", "XDeepFM", "train_replicas"]
