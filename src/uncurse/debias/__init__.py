"""Methods that remove the selection bias of served scores: `VAD`, `Tower` and `Auto`."""

from .auto import Auto, fit_auto
from .information_variance import information_variance
from .tower import Tower
from .vad import VAD

__all__ = ["VAD", "Auto", "Tower", "fit_auto", "information_variance"]
