"""Tables for the grid, from small files with named columns and in the formats of Avazu, Criteo and MovieLens."""

import gzip

import numpy as np
import polars as pl
import pytest

from uncurse import UncurseError
from uncurse_lab.grid import read_table


def drawn(rows, columns=4, values=30, seed=0):
    """Codes, and labels whose log odds are sums of effects of the codes."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(values, size=(rows, columns))
    effects = rng.normal(0, 0.5, (columns, values))
    odds = effects[np.arange(columns), codes].sum(axis=1) - 1
    return codes, rng.random(rows) < 1 / (1 + np.exp(-odds))


def write_avazu(path, codes, labels, numbered=False):
    lines = ["id,click,hour,device_id,site_id,C1"]
    for i, (row, label) in enumerate(zip(codes, labels, strict=True)):
        lines.append(("7," if numbered else "") + f"{i},{int(label)},{row[0]},d{i},s{row[1]},{row[2]}")
    path.write_text("\n".join(lines) + "\n")
    return path


def write_criteo(path, codes, labels, separator):
    wide = np.tile(codes, 10)[:, :39]
    path.write_text(
        "".join(separator.join(map(str, (int(y), *row))) + "\n" for y, row in zip(labels, wide, strict=True))
    )
    return path


def test_avazu_drops_unique_columns_and_joins_files_with_and_without_row_numbers(tmp_path):
    codes, labels = drawn(50)
    files = [write_avazu(tmp_path / "a.csv", codes[:20], labels[:20])]
    files.append(write_avazu(tmp_path / "b.csv", codes[20:], labels[20:], numbered=True))
    found = read_table(files)
    assert found.name == "avazu"
    assert found.codes.shape == (50, 3)
    assert (found.labels == labels).all()
    for column in range(3):
        assert len(np.unique(found.codes[:, column])) == len(np.unique(codes[:, column]))


def test_a_column_named_label_is_a_feature_beside_click(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("click,label,site\n1,a,b\n0,b,b\n1,b,c\n")
    found = read_table([path])
    assert found.labels.tolist() == [True, False, True]
    assert found.codes.tolist() == [[1, 1], [2, 1], [2, 2]]


def test_criteo_codes_keep_their_order_and_raw_counts_are_binned(tmp_path):
    codes, labels = drawn(60)
    found = read_table([write_criteo(tmp_path / "codes.csv", codes, labels, ",")])
    assert found.name == "criteo"
    assert found.codes.shape == (60, 39)
    assert (np.argsort(codes[:, 0], kind="stable") == np.argsort(found.codes[:, 0], kind="stable")).all()
    counts = np.tile(np.arange(0, 10_000, 167)[:60, None], 4)
    raw = read_table([write_criteo(tmp_path / "raw.txt", counts, labels, "\t")])
    assert len(np.unique(raw.codes[:, 0])) < 60 == len(np.unique(raw.codes[:, 20]))
    assert (np.diff(raw.codes[:, 0]) >= 0).all()


@pytest.mark.parametrize(
    "head", ["user_id:token\titem_id:token\trating:float\ttimestamp:float", "userId,movieId,rating,timestamp"]
)
def test_movielens_ratings_of_four_are_positive_and_rows_are_drawn_at_random(tmp_path, head):
    separator = "\t" if "\t" in head else ","
    path = tmp_path / "ratings.gz"
    rows = [(i % 7, i % 11, 1 + i % 5, i) for i in range(100)]
    with gzip.open(path, "wt") as stream:
        stream.write("\n".join([head, *(separator.join(map(str, row)) for row in rows)]) + "\n")
    found = read_table([path])
    assert found.name == "movielens"
    assert found.codes.shape == (100, 2)
    assert found.labels.tolist() == [row[2] >= 4 for row in rows]
    some = read_table([path], rows=30, seed=1)
    assert some.codes.shape == (30, 2)
    assert (read_table([path], rows=30, seed=1).labels == some.labels).all()


def test_bad_files_are_named(tmp_path):
    codes, labels = drawn(30)
    avazu = write_avazu(tmp_path / "a.csv", codes, labels)
    criteo = write_criteo(tmp_path / "c.csv", codes, labels, ",")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "other.csv").write_text("1,2,3\n4,5,6\n")
    (tmp_path / "text.csv").write_text("click,site\nyes,a\nno,b\n")
    (tmp_path / "bad.csv.gz").write_bytes(gzip.compress(b"click,site\n1,a\n" * 99)[:-9])
    (tmp_path / "twice.csv").write_text("click,site,site\n1,a,b\n0,b,c\n")
    (tmp_path / "long.csv").write_text("click,site,C1\n1,a\n0,b\n")
    (tmp_path / "unrated.csv").write_text("userId,movieId\n1,2\n3,4\n")
    (tmp_path / "bare.csv").write_text("id,click\n1,1\n2,0\n")
    for files, message in (
        ([tmp_path / "twice.csv"], "the names click, site, site for 3 columns"),
        ([tmp_path / "long.csv"], "the names click, site, C1 for 2 columns"),
        ([tmp_path / "unrated.csv"], "has no column 'rating'"),
        ([tmp_path / "bare.csv"], "has no feature"),
        ([avazu, avazu], "is named twice"),
        ([avazu, criteo], "different logs: avazu, criteo"),
        ([tmp_path / "empty.csv"], "cannot read .*empty.csv"),
        ([tmp_path / "other.csv"], "has 3 columns"),
        (
            [tmp_path / "text.csv"],
            "click is 'yes' in 2 lines of .*text.csv, not a number",
        ),
        ([tmp_path / "bad.csv.gz"], "cannot read"),
        ([tmp_path / "missing.csv"], "missing.csv"),
    ):
        with pytest.raises(UncurseError, match=message):
            read_table(files)


def test_files_have_numbers_categories_and_missing_values(tmp_path):
    frame = pl.DataFrame({"age": [1.5, None, 3.0], "site": ["b", "a", None], "zone": [7, 9, 7], "bought": [0, 1, 1]})
    frame.write_csv(tmp_path / "a.csv")
    frame.with_columns(pl.col("bought").cast(pl.Boolean)).write_parquet(tmp_path / "a.parquet")
    for name in ("a.csv", "a.parquet"):
        found = read_table([tmp_path / name], "bought", ["zone"])
        np.testing.assert_array_equal(found.numbers, [[1.5], [np.nan], [3.0]])
        np.testing.assert_array_equal(found.codes, [[3, 1], [2, 2], [1, 1]])
        assert found.labels.tolist() == [False, True, True]
    (tmp_path / "b.csv").write_text("bought,age,zone\n1,2,7\n")
    both = read_table([tmp_path / "a.csv", tmp_path / "b.csv"], "bought")
    np.testing.assert_array_equal(both.numbers, [[1.5, 7], [np.nan, 9], [3, 7], [2, 7]])
    frame.select("bought", "site").write_csv(tmp_path / "text.csv")
    assert read_table([tmp_path / "text.csv"], "bought").numbers.shape == (3, 0)


def test_bad_tables_are_named(tmp_path):
    (tmp_path / "a.csv").write_text("age,bought\n1,0\n2,2\n3,\n")
    (tmp_path / "bare.csv").write_text("bought\n1\n0\n")
    for name, label, categorical, message in (
        ("a.csv", "bought", [], "bought is 2 in 2 of 3 rows; pass a column of 0 and 1"),
        ("a.csv", "sold", [], "no column 'sold' .* it has age, bought"),
        ("a.csv", "bought", ["zone"], "no column 'zone'"),
        ("bare.csv", "bought", [], "bare.csv has no feature"),
        ("missing.csv", "bought", [], "cannot read .*missing.csv"),
    ):
        with pytest.raises(UncurseError, match=message):
            read_table([tmp_path / name], label, categorical)
