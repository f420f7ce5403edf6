"""Pages on selected rows, on a map since its fit, and on the best of many: one offline file each, or its charts."""

from .evaluation import Method, evaluation_page
from .monitor import monitor_page
from .page import Page
from .winners import winner_page

__all__ = ["Method", "Page", "evaluation_page", "monitor_page", "winner_page"]
