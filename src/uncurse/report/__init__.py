"""Pages on the calibration of the selected rows, and of a map since its fit: one offline file each, or its charts."""

from .evaluation import Method, evaluation_page
from .monitor import monitor_page
from .page import Page

__all__ = ["Method", "Page", "evaluation_page", "monitor_page"]
