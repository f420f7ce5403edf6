"""Readers of scores: frames, searches of scikit-learn and Optuna, and logs of lm-evaluation-harness and Inspect."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import ArrayLike

from ..errors import UncurseError
from .scores import Scores, codes_of, numbers_of

_GRADES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}  # of Inspect: correct, partial, incorrect, no answer


def from_frame(
    frame: Any, *, item: str, candidate: str, score: str, cluster: str | None = None, group: str | None = None
) -> Scores:
    """Read a frame with a row for each score.

    Parameters
    ----------
    frame : frame of pandas, Polars, PyArrow or another library that Narwhals reads
        Several scores of a candidate on an item are averaged.
    item, candidate, score : str
        Columns of the item, of the candidate and of its score. An item of one group is not one of another group.
    cluster, group : str, optional
        Column of the cluster of an item, and of the group of a candidate.

    Returns
    -------
    Scores

    Examples
    --------
    >>> import polars as pl
    >>> frame = pl.DataFrame({"id": [1, 1, 2, 2], "model": ["a", "b", "a", "b"], "right": [1, 0, 1, 1]})
    >>> from_frame(frame, item="id", candidate="model", score="right").values
    array([[1., 0.],
           [1., 1.]])
    """
    table = nw.from_native(frame, eager_only=True)
    absent = [name for name in (item, candidate, score, cluster, group) if name and name not in table.columns]
    if absent:
        raise UncurseError(f"the frame has no column {absent[0]!r}; it has {', '.join(table.columns)}")
    values = numbers_of(table, score)
    columns: dict[str, ArrayLike] = {name: table[name].to_numpy() for name in (item, candidate, cluster, group) if name}
    return _tabulate(columns[item], columns[candidate], values, columns.get(cluster or ""), columns.get(group or ""))


def from_search(search: Any) -> Scores:
    """Read the scores of a fitted search of scikit-learn on each fold: the items are the folds.

    Folds share most of their training rows, so their scores vary less than those of independent data sets would.
    Intervals are too narrow with few folds; use repeated cross-validation. Of a halving search, only the candidates
    of the last iteration are read.

    Parameters
    ----------
    search : GridSearchCV, RandomizedSearchCV or a halving search
        With several metrics, the one of ``refit`` is read.

    Returns
    -------
    Scores
    """
    results = getattr(search, "cv_results_", None)
    if results is None:
        raise UncurseError(f"{type(search).__name__} has no cv_results_; fit the search first")
    metric = search.refit if isinstance(search.refit, str) else "score"
    if f"split0_test_{metric}" not in results:
        raise UncurseError(f"the search has no split0_test_{metric}; pass refit='NAME' to choose a metric")
    folds = np.stack([results[f"split{i}_test_{metric}"] for i in range(search.n_splits_)])
    last = np.asarray(results["iter"]) == max(results["iter"]) if "iter" in results else np.full(folds.shape[1], True)
    names = [", ".join(f"{key}={value}" for key, value in params.items()) for params in results["params"]]
    return Scores(folds[:, last], [name for name, kept in zip(names, last, strict=True) if kept])


def from_study(study: Any) -> Scores:
    """Read the intermediate values of the trials of an Optuna study: the items are the steps, such as folds.

    Parameters
    ----------
    study : optuna.Study
        Trials report a score for each fold with ``trial.report(score, fold)``. Trials with fewer than two are left out.

    Returns
    -------
    Scores
    """
    trials = [trial for trial in study.trials if len(trial.intermediate_values) > 1]
    rows = [(step, f"trial {t.number}", value) for t in trials for step, value in t.intermediate_values.items()]
    if not rows:
        raise UncurseError("the study has no trial with two intermediate values; call trial.report(score, fold)")
    return _tabulate(*zip(*rows, strict=True), higher_is_better=study.direction.name != "MINIMIZE")


def from_lm_eval(paths: Iterable[str | PathLike[str]], metric: str | None = None) -> Scores:
    """Read ``samples_*.jsonl`` files that lm-evaluation-harness writes with ``--log_samples``.

    Parameters
    ----------
    paths : iterable of paths
        Files in one folder are candidates, such as prompts. Files in several folders are tasks, and their folders are
        candidates, such as models.
    metric : str, optional
        Name of the metric; by default the first one of each file.

    Returns
    -------
    Scores
    """
    files = [Path(path) for path in paths]
    several = len({file.parent for file in files}) > 1
    rows = []
    for file in files:
        samples = [json.loads(line) for line in _read(file).splitlines() if line.strip()]
        first = samples[0].get("filter") if samples else None  # a file has each sample once for each filter
        task = re.sub(r"_\d{4}-\d\d-\d\dT[\d.:-]+$", "", file.stem.removeprefix("samples_"))
        for sample in (one for one in samples if one.get("filter") == first):
            key = metric or next(iter(sample.get("metrics") or ["acc"]))
            if key not in sample:
                raise UncurseError(f"{file} has no metric {key!r}; choose one of {', '.join(map(str, sample))}")
            item, name = (f"{task} {sample['doc_id']}", file.parent.name) if several else (sample["doc_id"], task)
            rows.append((item, name, float(sample[key])))
    return _of_rows(rows)


def from_inspect(paths: Iterable[str | PathLike[str]], scorer: str | None = None) -> Scores:
    """Read logs of Inspect, ``.eval`` or ``.json``; each is a candidate.

    Parameters
    ----------
    paths : iterable of paths
        Names of candidates are those of the models, or of the files if two have the same model.
    scorer : str, optional
        Name of the scorer; by default the first one. Epochs of a sample are averaged.

    Returns
    -------
    Scores
    """
    logs = [(Path(path), *_inspect_log(Path(path))) for path in paths]
    models = [model for _, model, _ in logs]
    rows = []
    for file, model, samples in logs:
        for sample in samples:
            scores = sample.get("scores") or {}
            key = scorer or next(iter(scores), "")
            if key not in scores:
                raise UncurseError(f"sample {sample.get('id')} of {file} has no score {key!r}; choose another scorer")
            value = scores[key]["value"]
            try:
                number = _GRADES[value] if value in _GRADES else float(value)
            except (TypeError, ValueError):
                raise UncurseError(f"{file} has the score {value!r:.80}; pass a scorer that gives numbers") from None
            rows.append((sample["id"], file.stem if models.count(model) > 1 else model, number))
    return _of_rows(rows)


def _inspect_log(path: Path) -> tuple[str, list[dict[str, Any]]]:
    if path.suffix != ".eval":
        log = json.loads(_read(path))
        return log["eval"]["model"], log["samples"]
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.startswith("samples/")]
        model = json.loads(archive.read("header.json"))["eval"]["model"]
        return model, [json.loads(archive.read(name)) for name in names]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UncurseError(f"cannot read {path}: {error.strerror}") from None


def _of_rows(rows: Sequence[tuple[Any, str, float]]) -> Scores:
    if not rows:
        raise UncurseError("the files hold no scores; pass files with samples")
    return _tabulate(*zip(*rows, strict=True))


def _tabulate(
    items: ArrayLike, candidates: ArrayLike, values: ArrayLike, clusters: Any = None, groups: Any = None,
    *, higher_is_better: bool = True,
) -> Scores:  # fmt: skip
    """Return scores with a row for each item and a column for each candidate, within groups."""
    values = np.asarray(values, float)
    names, column = codes_of(candidates, len(values), "candidates")
    rows, row = codes_of(items, len(values), "items")
    labels, group = codes_of(np.zeros(len(values), int) if groups is None else groups, len(values), "groups")
    pairs, column = np.unique(column + len(names) * group, return_inverse=True)
    _, row = np.unique(row + len(rows) * group, return_inverse=True)
    shape = row.max() + 1, len(pairs)
    place = row * shape[1] + column
    with np.errstate(invalid="ignore"):
        table = np.bincount(place, values, shape[0] * shape[1]) / np.bincount(place, minlength=shape[0] * shape[1])
    cluster = None
    if clusters is not None:
        cluster = np.empty(shape[0], object)
        cluster[row] = clusters
    return Scores(
        table.reshape(shape), [names[pair % len(names)] for pair in pairs], cluster, None,
        None if groups is None else np.array(labels)[pairs // len(names)], higher_is_better,
    )  # fmt: skip
