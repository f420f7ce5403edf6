"""Logs for tests of the commands, and the metrics that the commands print."""

import json
from functools import cache

import numpy as np
import polars as pl
from scipy.special import expit


@cache
def make(rows=8_000, seed=0):
    rng = np.random.default_rng(seed)
    truth = rng.normal(-1.5, 0.8, rows)
    return pl.DataFrame(
        {
            "id": [f"{i:05d}" for i in range(rows)],
            "s1": truth + rng.normal(0, 0.4, rows),
            "s2": truth + rng.normal(0, 0.4, rows),
            "click": (rng.random(rows) < expit(truth)).astype(np.int8),
            "w": rng.integers(1, 3, rows).astype(np.float64),
            "site": rng.choice(["news", "sport"], rows),
            "request": rng.integers(0, rows // 10, rows),
        }
    )


def records(text):
    """Return the metrics of each method and share, with the sums of value."""
    rows = []
    for method in json.loads(text)["methods"]:
        for i, row in enumerate(method["evaluation"]["rows"]):
            error = {"method": method["name"], "calibration_error": row["calibration_error"]["value"]}
            valued = {} if method["value"] is None else method["value"]["rows"][i]
            rows.append({**row, **error, **{f"value_{name}": sums for name, sums in valued.items()}})
    return rows
