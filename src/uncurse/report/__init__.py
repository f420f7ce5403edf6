"""Temporary."""

from dataclasses import dataclass
from typing import Any


@dataclass
class Method:
    name: str
    evaluation: Any
    record: Any = None
