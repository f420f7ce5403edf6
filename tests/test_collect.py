"""A log gives the same evidence and the same maps on every engine."""

from dataclasses import replace
from functools import cache

import numpy as np
import polars as pl
import pytest

from engines import MANY_ROWS
from uncurse import VAD, UncurseError, top_share
from uncurse.evidence import Cells, Evidence, LogSpec, TopK, from_arrays
from uncurse.links import logistic
from uncurse.logs import collect
from uncurse.metrics import evaluate_log

SPARK = pytest.param("spark", marks=pytest.mark.spark)
FILES = ["parquet", "csv", "parquet duckdb", "csv duckdb"]
ENGINES = ["polars", "lazy polars", "pandas", "pyarrow", "duckdb", "ibis", *FILES, SPARK]
pytestmark = pytest.mark.usefixtures("many_rows_are_few")
PROBE = np.linspace(-7, 4, 2_001)


def with_sizes(engines):
    """These engines on a large log, and two on a small one, whose rows become arrays whatever the engine."""
    for engine in engines:
        plain, marks = (engine, ()) if isinstance(engine, str) else (*engine.values, engine.marks)
        yield pytest.param(plain, "large", marks=marks)
    yield from (("polars", "small"), ("duckdb", "small"))


def make_log(rows, seed=0, dtype=np.float32):
    rng = np.random.default_rng(seed)
    truth = rng.normal(-1.5, 0.8, rows)
    scores = (truth[:, None] + rng.normal(0, 0.4, (rows, 2))).astype(dtype)
    return pl.DataFrame(
        {
            "s1": scores[:, 0],
            "s2": scores[:, 1],
            "click": (rng.random(rows) < logistic(truth)).astype(np.int8),
            "w": rng.integers(0, 3, rows).astype(np.float64),
            "site": rng.choice(["news", "sport", 'it\'s "video"'], rows),
            "p1": logistic(scores[:, 0].astype(np.float64)),
            "p2": logistic(scores[:, 1].astype(np.float64)),
        }
    )


LOGS = {"large": make_log(MANY_ROWS + 8_000), "small": make_log(5_000, seed=1)}


@pytest.fixture
def log(size):
    return LOGS[size]


def near(log):
    """Labelled rows on which replicas differ less, so that the pool has something to add."""
    return log.with_columns(s2=(pl.col("s1") + pl.col("s2")) / 2)


@cache
def fitted_to_arrays(size, method=None):
    log = LOGS[size]
    others = near(log).select("s1", "s2").to_numpy(), log["click"].to_numpy()
    return VAD(calibrator=method).fit(log.select("s1", "s2").to_numpy(), labelled=others if method else None)


@cache
def fitted_to_groups_of_arrays(size):
    log = LOGS[size]
    pool = log.select("p1", "p2").to_numpy()
    return VAD(scale="probability").fit(pool, groups=log["site"].to_numpy(), sample_weight=log["w"].to_numpy())


@pytest.mark.parametrize(("engine", "size"), list(with_sizes(ENGINES)))
def test_every_engine_gives_the_lambda_and_the_maps_of_numpy(engine, size, log, opened):
    source, options = opened(engine, log)
    found = collect(source, ["s1", "s2"], label="click", **options)
    assert found.rows == len(log)
    assert abs(VAD().fit(found).lambda_ - fitted_to_arrays(size).lambda_) < 1e-12
    source, options = opened(engine, near(log))
    labelled = collect(source, ["s1", "s2"], label="click", **options)
    for method in ("platt", "beta", "isotonic", "histogram"):
        ours = VAD(calibrator=method).fit(found, labelled=labelled)
        numpy = fitted_to_arrays(size, method)
        assert ours.lambda_ < 0.95
        assert abs(ours.lambda_ - numpy.lambda_) < 1e-12
        np.testing.assert_allclose(ours.map_(PROBE), numpy.map_(PROBE), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("engine", "size"), list(with_sizes(ENGINES)))
def test_every_engine_gives_the_cells_of_numpy(engine, size, log, opened):
    source, options = opened(engine, log)
    found = collect(source, "s1", label="click", weight="w", **options).cells
    expected = Cells().update(log["s1"].to_numpy(), log["click"].to_numpy(), sample_weight=log["w"].to_numpy())
    assert found.rows == expected.rows
    for name in ("score", "weight", "label", "weight_squares", "label_squares"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-12, atol=1e-12, err_msg=name)


@pytest.mark.parametrize(("engine", "size"), list(with_sizes(ENGINES)))
def test_groups_weights_and_probabilities_agree_with_arrays(engine, size, log, opened):
    source, options = opened(engine, log)
    found = collect(source, ["p1", "p2"], weight="w", group="site", scale="probability", **options)
    vad = VAD(scale="probability").fit(found)
    expected = fitted_to_groups_of_arrays(size)
    assert set(vad.group_lambda_) == {"news", "sport", 'it\'s "video"'}
    for name, value in expected.group_lambda_.items():
        assert abs(vad.group_lambda_[name] - value) < 1e-12
        assert abs(vad.group_center_[name] - expected.group_center_[name]) < 1e-12
    assert abs(vad.lambda_ - expected.lambda_) < 1e-12
    assert 0.3 < vad.standard_error_ / expected.standard_error_ < 3


@pytest.mark.parametrize(("engine", "size"), list(with_sizes(["lazy polars", "pandas", "duckdb", "ibis"])))
def test_scores_are_corrected_for_the_negative_rate_once(engine, size, log, opened):
    source, options = opened(engine, log)
    found = collect(source, ["s1", "s2"], label="click", negative_rate=0.1, **options)
    vad = VAD(negative_rate=0.1).fit(found)
    expected = VAD(negative_rate=0.1).fit(log.select("s1", "s2").to_numpy())
    np.testing.assert_allclose(vad.map_(PROBE), expected.map_(PROBE), rtol=0, atol=1e-12)
    # Cells hold corrected logits and a map corrects raw ones: evaluate_log must not correct twice.
    raw = collect(source, ["s1", "s2"], label="click", **options)
    for score_map in (vad.map_, None):
        a = evaluate_log(found, score_map, [0.1]).rows[0]
        b = evaluate_log(raw, score_map or expected.map_.__class__(1.0, float(np.log(0.1))), [0.1]).rows[0]
        assert abs(a.predicted / b.predicted - 1) < 1e-6


@pytest.mark.parametrize(
    ("engine", "link"),
    [
        *((engine, link) for engine in ("lazy polars", "duckdb") for link in ("identity", "log")),
        pytest.param("spark", "log", marks=pytest.mark.spark),
    ],
)
def test_every_link_gives_the_lambda_of_arrays(engine, link, opened):
    log = LOGS["large"]
    source, options = opened(engine, log)
    for scale, names in (("logit", ["s1", "s2"]), ("probability", ["p1", "p2"]), ("value", ["p1", "p2"])):
        found = collect(source, names, scale=scale, link=link, **options)
        expected = VAD(link=link, scale=scale).fit(log.select(names).to_numpy())
        assert abs(VAD(link=link, scale=scale).fit(found).lambda_ - expected.lambda_) < 1e-12
        assert (found.cells is None) == (scale == "value")


def test_the_probit_link_is_refused_by_query_engines(opened):
    log = LOGS["large"]
    found = collect(log.lazy(), ["s1", "s2"], link="probit")
    expected = VAD(link="probit").fit(log.select("s1", "s2").to_numpy())
    assert abs(VAD(link="probit").fit(found).lambda_ - expected.lambda_) < 1e-12
    with pytest.raises(UncurseError, match="probit link has no form in SQL; collect with Polars"):
        collect(opened("duckdb", log)[0], ["s1", "s2"], link="probit")


def test_evidence_of_days_merges_to_that_of_all(tmp_path):
    log = LOGS["large"]
    whole = collect(log, ["s1", "s2"], label="click", group="site")
    for i, part in enumerate((log[:10_000], log[10_000:])):
        collect(part, ["s1", "s2"], label="click", group="site").save(tmp_path / f"{i}.json")
    a, b = (Evidence.load(tmp_path / f"{i}.json") for i in (0, 1))
    merged = a.merge(b)
    assert merged.rows == whole.rows
    assert abs(VAD().fit(merged).lambda_ - VAD().fit(whole).lambda_) < 1e-12
    np.testing.assert_allclose(merged.cells.label, whole.cells.label)
    np.testing.assert_allclose(merged.cells.score, whole.cells.score)
    for name, part in whole.groups.items():
        assert merged.groups[name].rows == part.rows


def test_evidence_survives_its_file(tmp_path):
    found = collect(LOGS["small"], ["s1", "s2"], label="click", group="site", weight="w", negative_rate=0.5)
    found.save(tmp_path / "day.json")
    again = Evidence.load(tmp_path / "day.json")
    assert again.to_dict() == found.to_dict()
    assert VAD(negative_rate=0.5).fit(again).lambda_ == VAD(negative_rate=0.5).fit(found).lambda_


@pytest.mark.parametrize("rows", [1, 2, 3, 33, 50, 70])
def test_evidence_of_blocks_of_one_row_survives_its_file(rows, tmp_path):
    for seed in range(5):
        found = collect(make_log(rows, seed, np.float64), ["s1", "s2"])
        found.save(tmp_path / "day.json")
        assert Evidence.load(tmp_path / "day.json").to_dict() == found.to_dict()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scores": ["p1", "p2"], "scale": "probability"}, "scores is s1, s2 in one and p1, p2 in the other; collect"),
        ({"scores": ["s2", "s1"]}, "scores is s1, s2 in one and s2, s1 in the other; collect both with the same"),
        ({"negative_rate": 0.1}, "negative_rate is None in one and 0.1 in the other"),
        ({"link": "identity"}, "link is logistic in one and identity in the other"),
        ({"label": "click"}, "label is None in one and click in the other"),
        ({"weight": "w"}, "weight is None in one and w in the other"),
        ({"group": "site"}, "group is None in one and site in the other"),
        ({"top_k": TopK("site", 2)}, "top_k is None in one and top 2 of each site in the other"),
        ({"replica_counts": True}, "only one side has replica_counts"),
    ],
)
def test_evidence_that_was_collected_with_other_options_does_not_merge(options, message):
    log = LOGS["small"]
    a = collect(log, ["s1", "s2"])
    b = collect(log, **{"scores": ["s1", "s2"], **options})
    before = a.to_dict(), b.to_dict()
    for one, two in ((a, b), (b, a)):
        with pytest.raises(UncurseError, match="cannot merge evidence: " + (message if one is a else "")):
            one.merge(two)
    assert (a.to_dict(), b.to_dict()) == before


def test_evidence_of_a_log_merges_with_that_of_arrays():
    log = LOGS["small"]
    scores, y = log.select("s1", "s2").to_numpy(), log["click"].to_numpy()
    a = collect(log[:2_000], ["s1", "s2"], label="click")
    b = from_arrays(scores[2_000:], y[2_000:], spec=LogSpec(("s1", "s2"), label="click"))
    assert VAD().fit(a.merge(b)).lambda_ == pytest.approx(VAD().fit(scores).lambda_, rel=1e-12)


def test_a_log_of_one_column_with_a_known_noise_variance_has_the_map_of_its_array():
    expected = VAD().fit(LOGS["small"]["s1"].to_numpy(), variance=0.1)
    for engine in ("polars", "duckdb"):
        found = VAD().fit(collect(LOGS["small"], ["s1"], engine=engine), variance=0.1)
        assert found.lambda_ == pytest.approx(expected.lambda_, rel=1e-12)


def test_a_vad_refuses_evidence_of_another_scale_or_without_labels():
    found = collect(LOGS["small"], ["s1", "s2"])
    with pytest.raises(
        UncurseError,
        match="evidence of the pool was collected with scale='logit', not 'probability'; use the same scale",
    ):
        VAD(scale="probability").fit(found)
    with pytest.raises(UncurseError, match=r"collected with negative_rate=None, not 0\.1"):
        VAD(negative_rate=0.1).fit(found)
    with pytest.raises(UncurseError, match="labelled evidence holds no labels; collect it with its label column"):
        VAD(calibrator="platt").fit(found, labelled=found)
    with pytest.raises(UncurseError, match="the log holds no labels; collect it with its label column"):
        evaluate_log(found)


def test_a_tandem_by_group_needs_the_cells_of_groups():
    found = collect(LOGS["small"], ["s1", "s2"], label="click", group="site")
    groups = {name: replace(part, cells=None) for name, part in found.groups.items()}
    tandem = VAD(calibrator="platt", recentre=False)
    assert set(tandem.fit(found, labelled=found).group_lambda_) == set(groups)
    with pytest.raises(UncurseError, match="has no cells; a calibrator with recentre=False needs them; use fewer gr"):
        tandem.fit(replace(found, groups=groups), labelled=found)


def test_many_groups_keep_moments_and_no_cells():
    rng = np.random.default_rng(0)
    log = LOGS["large"].with_columns(site=pl.Series(rng.integers(0, 300, len(LOGS["large"]))))
    found = collect(log.lazy(), ["s1", "s2"], label="click", group="site")
    assert len(found.groups) == 300
    assert all(part.cells is None for part in found.groups.values())
    vad = VAD().fit(found)
    expected = VAD().fit(log.select("s1", "s2").to_numpy(), groups=log["site"].to_numpy())
    for name, value in expected.group_lambda_.items():
        assert abs(vad.group_lambda_[name] - value) < 1e-12
    with pytest.raises(UncurseError, match="more than 200 groups is collected without their cells"):
        evaluate_log(found, vad.map_)


def test_a_map_by_group_is_evaluated_by_group():
    log = LOGS["small"]
    vad = VAD().fit(log.select("s1", "s2").to_numpy(), groups=log["site"].to_numpy())
    found = collect(log, "s1", label="click", group="site")
    p = vad.predict_proba(log["s1"].to_numpy(), groups=log["site"].to_numpy())
    for row in evaluate_log(found, vad.map_, [0.05, 0.2]).rows:
        top = top_share(log["s1"].to_numpy(), row.alpha)
        assert abs(row.predicted / p[top].sum() - 1) < 1e-12
        assert row.observed == log["click"].to_numpy()[top].sum()
    with pytest.raises(UncurseError, match="this map has a map for each group; collect the log by its group column"):
        evaluate_log(collect(log, "s1", label="click"), vad.map_)


def test_the_standard_error_of_a_frame_in_memory_is_that_of_arrays():
    rng = np.random.default_rng(3)
    errors = []
    for _ in range(20):
        truth = rng.normal(-1.5, 0.8, 20_000)
        pool = truth[:, None] + rng.normal(0, 0.4, (20_000, 2))
        frame = pl.DataFrame({"a": pool[:, 0], "b": pool[:, 1]})
        errors.append(VAD().fit(collect(frame, ["a", "b"])).standard_error_ / VAD().fit(pool).standard_error_)
    np.testing.assert_allclose(errors, 1.0, atol=1e-9)


def test_progress_is_called_with_the_rows_of_each_batch(monkeypatch, tmp_path):
    from uncurse.logs import batches

    monkeypatch.setattr(batches, "_BATCH", 3_000)
    log, path = LOGS["large"], tmp_path / "log.parquet"
    log.write_parquet(path, row_group_size=2_000)
    seen = []
    found = collect(path, ["s1", "s2"], label="click", progress=seen.append)
    assert sum(seen) == len(log)
    assert len(seen) > 5
    assert abs(VAD().fit(found).lambda_ - VAD().fit(log.select("s1", "s2").to_numpy()).lambda_) < 1e-12
    expected = Cells().update(log["s1"].to_numpy(), log["click"].to_numpy())
    np.testing.assert_allclose(found.cells.score, expected.score, rtol=1e-12)
    np.testing.assert_array_equal(found.cells.label, expected.label)
    assert 0.5 < VAD().fit(found).standard_error_ / VAD().fit(log.select("s1", "s2").to_numpy()).standard_error_ < 2


@pytest.mark.parametrize("kind", ["csv", "parquet", "hive", "glob", "list"])
def test_a_log_may_be_a_folder_a_glob_or_a_list_of_files(kind, tmp_path):
    log = LOGS["small"]
    parts = [log[:2_000], log[2_000:]]
    if kind == "csv":
        for i, part in enumerate(parts):
            part.write_csv(tmp_path / f"{i}.csv", float_precision=9)
        source = tmp_path
    elif kind == "hive":
        for i, part in enumerate(parts):
            (tmp_path / f"day={i}").mkdir()
            part.write_parquet(tmp_path / f"day={i}" / "part.parquet")
        source = tmp_path
    else:
        for i, part in enumerate(parts):
            part.write_parquet(tmp_path / f"{i}.parquet")
        (tmp_path / ".hidden.parquet").write_bytes(b"half")  # what a killed writer leaves behind
        (tmp_path / "_SUCCESS").touch()
        source = {"parquet": tmp_path, "glob": str(tmp_path / "[01].parquet")}.get(
            kind, [tmp_path / "0.parquet", tmp_path / "1.parquet"]
        )
    found = collect(source, ["s1", "s2"], label="click")
    expected = collect(log, ["s1", "s2"], label="click")
    assert found.rows == len(log)
    assert abs(VAD().fit(found).lambda_ - VAD().fit(expected).lambda_) < (1e-7 if kind == "csv" else 1e-12)
    if kind == "hive":
        assert set(collect(source, "s1", group="day").groups) == {"0", "1"}


def test_files_may_differ_in_other_columns_and_in_the_width_of_numbers(tmp_path):
    log = LOGS["small"]
    log[:2_000].write_parquet(tmp_path / "a.parquet")
    log[2_000:].with_columns(pl.col("s1").cast(pl.Float64), extra=pl.lit("x")).write_parquet(tmp_path / "b.parquet")
    found = collect(tmp_path, ["s1", "s2"])
    assert found.rows == len(log)


@pytest.mark.parametrize("engine", ["pandas", "lazy polars", "duckdb", SPARK])
def test_labels_may_be_true_and_false_and_scores_whole_numbers(engine, opened):
    log = LOGS["large"].select("s1", click=pl.col("click") == 1, n=pl.col("w").cast(pl.Int32))
    source, options = opened(engine, log)
    found = collect(source, ["s1", "n"], label="click", **options)
    assert found.cells.label.sum() == log["click"].sum()
    np.testing.assert_allclose(found.moments.mean[1], log["n"].mean())


def test_sums_keep_their_digits_far_from_zero(opened):
    log = LOGS["large"].select(pl.col("s1").cast(pl.Float64) + 1e5, pl.col("s2").cast(pl.Float64) + 1e5)
    expected = VAD(link="identity", scale="value").fit(log.to_numpy())
    for engine in ("lazy polars", "duckdb"):
        found = collect(opened(engine, log)[0], ["s1", "s2"], scale="value", link="identity")
        assert abs(VAD(link="identity", scale="value").fit(found).lambda_ - expected.lambda_) < 1e-9


def test_a_pool_of_selected_rows_is_refused():
    found = collect(LOGS["small"], ["s1", "s2"], top_k=TopK("site", 50))
    assert found.rows == 150
    with pytest.raises(UncurseError, match="the pool holds only the top 50 of each site; collect all candidates"):
        VAD().fit(found)


@pytest.mark.parametrize("top_k", [3, "site", ("site", 3)])
def test_top_k_must_name_the_column_of_requests(top_k):
    with pytest.raises(UncurseError, match="pass a TopK"):
        collect(LOGS["small"], ["s1", "s2"], top_k=top_k)


@pytest.mark.parametrize("engine", ["polars", "duckdb"])
def test_probabilities_without_weights_are_collected_by_a_query(engine, opened):
    source, options = opened(engine, LOGS["large"])
    assert collect(source, ["p1", "p2"], scale="probability", **options).rows == len(LOGS["large"])


@pytest.mark.parametrize(
    ("column", "value", "options", "message"),
    [
        ("p1", 1.5, {"scale": "probability"}, r"column 'p1' holds 1\.5; that is not a probability; are these logits"),
        ("p2", 1.0, {"scale": "probability"}, "column 'p2' holds 1; there a logit is infinite; pass logits, or clip"),
        ("p2", 0.0, {"scale": "value", "link": "log"}, "column 'p2' holds 0; that has no logarithm; use the identity"),
        ("click", 2, {"label": "click", "scale": "probability"}, "column 'click' holds 2; labels must be 0 or 1"),
        ("w", -0.5, {"weight": "w", "scale": "probability"}, r"column 'w' holds -0\.5; weights must be 0 or more"),
    ],
)
def test_a_query_names_the_column_and_the_value_at_fault(column, value, options, message, opened):
    log = LOGS["large"].with_columns(pl.when(pl.int_range(pl.len()) == 7).then(value).otherwise(column).alias(column))
    source, _ = opened("duckdb", log)
    with pytest.raises(UncurseError, match=message):
        collect(source, ["p1", "p2"], **options)
