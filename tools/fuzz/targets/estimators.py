"""Targets: replicas of scikit-learn estimators."""

from __future__ import annotations

__all__: list[str] = []
