"""Readers of scores. Files of lm-evaluation-harness and Inspect are written here in their documented layouts."""

import json
import zipfile

import numpy as np
import polars as pl
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import make_classification
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, HalvingGridSearchCV, RandomizedSearchCV

from uncurse import UncurseError, winner
from uncurse.winners import from_frame, from_inspect, from_lm_eval, from_search, from_study

X, Y = make_classification(200, random_state=0)
GRID = {"C": [0.001, 0.1, 10.0]}


@pytest.mark.parametrize("kind", [pl.DataFrame, "pandas"])
def test_a_long_frame_is_a_matrix_with_clusters_and_groups(kind):
    rows = {
        "q": [1, 1, 2, 2, 1, 2, 3, 3],
        "model": ["b", "a", "b", "a", "c", "c", "a", "a"],
        "score": [1.0, 0.0, 1.0, 1.0, 0.5, 0.0, 0.0, 1.0],
        "topic": ["x", "x", "y", "y", "x", "y", "y", "y"],
        "family": ["f", "f", "f", "f", "g", "g", "f", "f"],
    }
    frame = pytest.importorskip("pandas").DataFrame(rows) if kind == "pandas" else kind(rows)
    plain = from_frame(frame, item="q", candidate="model", score="score")
    assert list(plain.names) == ["b", "a", "c"]
    assert_allclose(plain.values, [[1, 0, 0.5], [1, 1, 0], [np.nan, 0.5, np.nan]])  # two scores of one item: their mean
    grouped = from_frame(frame, item="q", candidate="model", score="score", cluster="topic", group="family")
    assert list(grouped.groups) == ["f", "f", "g"]
    assert list(grouped.clusters) == ["x", "y", "y", "x", "y"]  # an item of one group is not one of another
    assert [best.name for best in winner(grouped)] == ["b", "c"]
    with pytest.raises(UncurseError, match="no column 'absent'"):
        from_frame(frame, item="absent", candidate="model", score="score")
    with pytest.raises(UncurseError, match="column 'topic' holds 'x' in row 0"):
        from_frame(frame, item="q", candidate="model", score="topic")


def test_searches_of_scikit_learn_give_the_scores_of_each_fold():
    search = GridSearchCV(LogisticRegression(), GRID, cv=4).fit(X, Y)
    best = winner(from_search(search))
    assert best.index == search.best_index_
    assert best.observed == pytest.approx(search.best_score_)
    assert best.name == f"C={search.best_params_['C']}"
    assert_allclose(best.observations, search.cv_results_["mean_test_score"])


def test_a_search_with_several_metrics_reads_the_one_that_refits():
    model, scoring = LogisticRegression(), ["accuracy", "roc_auc"]
    search = RandomizedSearchCV(model, GRID, n_iter=2, cv=3, scoring=scoring, refit="roc_auc", random_state=0).fit(X, Y)
    assert winner(from_search(search)).observed == pytest.approx(search.best_score_)
    search = GridSearchCV(model, GRID, cv=3, scoring=scoring, refit=False).fit(X, Y)
    with pytest.raises(UncurseError, match="refit"):
        from_search(search)
    with pytest.raises(UncurseError, match="cv_results_"):
        from_search(GridSearchCV(model, GRID))
    with pytest.raises(UncurseError, match="from_search"):
        winner(search)


def test_a_halving_search_reads_its_last_iteration():
    search = HalvingGridSearchCV(LogisticRegression(), {"C": [0.001, 0.1, 1.0, 10.0]}, cv=3, factor=2, random_state=0)
    scores = from_search(search.fit(X, Y))
    last = search.cv_results_["iter"] == search.cv_results_["iter"].max()
    assert len(scores.names) == last.sum() < len(last)


def test_studies_of_optuna_give_their_intermediate_values():
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(direction="minimize", sampler=optuna.samplers.RandomSampler(seed=0))

    def objective(trial):
        losses = [(trial.suggest_float("x", 0, 1) - 0.3) ** 2 + 0.1 * fold for fold in range(4)]
        for fold, loss in enumerate(losses):
            trial.report(loss, fold)
            if trial.number == 2:
                raise optuna.TrialPruned
        return np.mean(losses)

    study.optimize(objective, n_trials=5)
    scores = from_study(study)
    assert list(scores.names) == ["trial 0", "trial 1", "trial 3", "trial 4"]
    best = winner(scores)
    assert best.name == f"trial {study.best_trial.number}"
    assert best.observed == pytest.approx(study.best_value)


@pytest.fixture
def samples(tmp_path):
    """Write samples_*.jsonl as ``lm_eval --log_samples`` does: a line for each sample and filter."""

    def write(path, values):
        lines = [
            {"doc_id": i, "doc": {"question": str(i)}, "target": "4", "arguments": {}, "resps": [["4"]],
             "filtered_resps": ["4"], "filter": name, "metrics": ["exact_match"], "doc_hash": "a", "prompt_hash": "b",
             "target_hash": "c", "exact_match": value if name == "strict-match" else 1.0}
            for name in ("strict-match", "flexible-extract") for i, value in enumerate(values)
        ]  # fmt: skip
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text("".join(json.dumps(line) + "\n" for line in lines))
        return tmp_path / path

    return write


def test_files_of_lm_evaluation_harness_in_one_folder_are_candidates(samples):
    files = [samples(f"m/samples_gsm8k_{name}_2024-06-01T10-00-00.123456.jsonl", [1.0, 0.0, value])
             for name, value in (("cot", 1.0), ("plain", 0.0))]  # fmt: skip
    scores = from_lm_eval(files)
    assert list(scores.names) == ["gsm8k_cot", "gsm8k_plain"]
    assert_allclose(scores.values, [[1, 1], [0, 0], [1, 0]])
    with pytest.raises(UncurseError, match="no metric 'bleu'"):
        from_lm_eval(files, "bleu")


def test_folders_of_lm_evaluation_harness_are_candidates_and_files_are_tasks(samples):
    files = [
        samples(f"{model}/samples_{task}_2024-06-01T10-00-00.1.jsonl", [float(model == "x"), 0.0])
        for model in ("x", "y") for task in ("arc", "hellaswag")
    ]  # fmt: skip
    scores = from_lm_eval(files)
    assert list(scores.names) == ["x", "y"]
    assert_allclose(scores.values, [[1, 0], [0, 0]] * 2)


def inspect_log(model, values):
    samples = [
        {"id": i // 2, "epoch": i % 2 + 1, "input": "?", "target": "4", "scores": {"match": {"value": value}}}
        for i, value in enumerate(values)
    ]
    return {"version": 2, "status": "success", "eval": {"task": "arithmetic", "model": model}, "samples": samples}


def test_logs_of_inspect_are_read_from_json_and_archives(tmp_path):
    one, other = inspect_log("openai/a", ["C", "I", "P", "C"]), inspect_log("openai/b", [0.5, True, "N", "I"])
    (tmp_path / "one.json").write_text(json.dumps(one))
    with zipfile.ZipFile(tmp_path / "other.eval", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", json.dumps({**other, "samples": None}))
        for sample in other["samples"]:
            archive.writestr(f"samples/{sample['id']}_epoch_{sample['epoch']}.json", json.dumps(sample))
    scores = from_inspect([tmp_path / "one.json", tmp_path / "other.eval"])
    assert list(scores.names) == ["openai/a", "openai/b"]
    assert_allclose(scores.values, [[0.5, 0.75], [0.75, 0.0]])  # epochs are averaged
    with pytest.raises(UncurseError, match="no score 'f1'"):
        from_inspect([tmp_path / "one.json"], "f1")
    (tmp_path / "text.json").write_text(json.dumps(inspect_log("openai/c", ["good", "bad"])))
    with pytest.raises(UncurseError, match="'good'"):
        from_inspect([tmp_path / "text.json"])
    with pytest.raises(UncurseError, match="cannot read"):
        from_inspect([tmp_path / "absent.json"])
