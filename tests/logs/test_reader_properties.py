"""Readers count the same rows with the same values, however a log is written."""

import contextlib
import csv
import io
import warnings

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from uncurse import UncurseError, collect

# Scores with few digits, which every type of column holds; names that differ by case alone.
SCORES = st.lists(st.integers(-64, 64).map(lambda i: i / 8), min_size=2, max_size=40)
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\r\x00"), max_size=6)
TYPES = [pl.Float32, pl.Float64, pl.Int8, pl.Int64, pl.Decimal(12, 3)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("logs")


def check(found, scores, segments):
    np.testing.assert_allclose(found.moments.mean[0], np.mean(scores), atol=1e-12)
    assert found.rows == len(scores)
    assert {name: part.rows for name, part in found.segments.items()} == {s: segments.count(s) for s in segments}


@given(
    scores=SCORES,
    data=st.data(),
    end=st.sampled_from(["\n", "\r\n"]),
    mixed=st.booleans(),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]),
    last=st.booleans(),
    mark=st.booleans(),
)
def test_a_csv_file_of_any_dialect_gives_its_rows(folder, scores, data, end, mixed, quoting, last, mark):
    segments = data.draw(st.lists(st.sampled_from(["#a", "a,b", 'say "x"', " pad ", "ü", "007"]), min_size=len(scores),
                                  max_size=len(scores)))  # fmt: skip
    notes = data.draw(st.lists(TEXT, min_size=len(scores), max_size=len(scores)))
    text = io.StringIO()
    writer = csv.writer(text, quoting=quoting, lineterminator="\n")
    writer.writerow(["#id", "S0", "s0", "site", "note"])
    for i, (score, site, note) in enumerate(zip(scores, segments, notes, strict=True)):
        writer.writerow([f"#{i}", 99.0, score, site, note.replace("\n", " ")])
    lines = text.getvalue().rstrip("\n").split("\n")
    ends = [("\n" if mixed and i % 2 else end) for i in range(len(lines))]
    ends[-1] = end if last else ""
    body = "".join(line + one for line, one in zip(lines, ends, strict=True))
    path = folder / "log.csv"
    path.write_bytes((b"\xef\xbb\xbf" if mark else b"") + body.encode())
    check(collect(path, "s0", segment="site"), scores, segments)


@given(
    scores=SCORES, dtype=st.sampled_from(TYPES), kind=st.sampled_from(["parquet", "csv", "polars", "pandas", "arrow"])
)
def test_columns_of_every_type_give_the_same_rows(folder, scores, dtype, kind):
    scores = [float(round(x)) for x in scores] if dtype.is_integer() else scores
    log = pl.DataFrame({"S0": [99.0] * len(scores), "s0": pl.Series(scores).cast(dtype), "site": ["a"] * len(scores)})
    source = folder / f"log.{kind}"
    if kind == "parquet":
        log.write_parquet(source)
    elif kind == "csv":
        log.write_csv(source)
    else:
        source = {"polars": log.lazy(), "pandas": log.to_pandas(), "arrow": log.to_arrow()}[kind]
    check(collect(source, "s0", segment="site"), scores, ["a"] * len(scores))


@given(scores=SCORES, gone=st.sets(st.integers(0, 39)), missing=st.sampled_from(["drop", "null"]), kind=st.booleans())
def test_the_rows_that_count_and_those_that_are_left_out_are_all_rows(folder, scores, gone, missing, kind):
    gone &= set(range(1, len(scores)))
    log = pl.DataFrame({"s0": [None if i in gone else x for i, x in enumerate(scores)], "id": range(len(scores))})
    source = folder / f"gone.{'csv' if kind else 'parquet'}"
    log.write_csv(source) if kind else log.write_parquet(source)
    if gone:
        with pytest.raises(UncurseError, match=rf"'s0', {f'line {min(gone) + 2}' if kind else f'row {min(gone)}'} is"):
            collect(source, "s0")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = collect(source, "s0", missing=missing)
    said = [str(one.message) for one in caught if "are not counted" in str(one.message)]
    assert said == ([f"{len(gone):,} rows have no s0; they are not counted"] if gone else [])
    check(found, [x for i, x in enumerate(scores) if i not in gone], [])


@given(
    content=st.binary(max_size=200),
    header=st.sampled_from([b"", b"s0,id\n", b'"s0","id"\r\n', b"PAR1"]),
    data=st.data(),
)
def test_a_file_of_any_bytes_is_read_or_refused(folder, content, header, data):
    path = folder / f"any.{data.draw(st.sampled_from(['csv', 'parquet', 'csv.gz']))}"
    path.write_bytes(header + content)
    with contextlib.suppress(UncurseError):
        assert collect(path, "s0").rows >= 1
