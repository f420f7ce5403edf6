"""An auction market: what the winner's curse costs in money, and how much of it a map recovers."""

from .landscape import Landscape
from .market import Account, Auctions, Market
from .policies import DEFAULT, POLICIES, History, fit_policy
from .simulate import LABELS, TRUTH, Outcome, Settings, simulate

__all__ = [
    "DEFAULT",
    "LABELS",
    "POLICIES",
    "TRUTH",
    "Account",
    "Auctions",
    "History",
    "Landscape",
    "Market",
    "Outcome",
    "Settings",
    "fit_policy",
    "simulate",
]
