"""Click logs of Criteo and Avazu: codes, bad lines, and the file of the encoded rows."""

import csv
import gzip
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import feather

from uncurse import UncurseError
from uncurse_lab.logs import Encoded, encode

SAMPLES = Path(__file__).parents[3] / "shared" / "data"
CRITEO_SAMPLE = SAMPLES / "criteo_kaggle_raw" / "criteo_train_first10k.txt.gz"
AVAZU_SAMPLES = [
    SAMPLES / "avazu" / name for name in ("avazu_train_first10k.csv.gz", "avazu_random10k_with_rowindex.csv.gz")
]
AVAZU_HEADER = (
    "id,click,hour,C1,banner_pos,site_id,site_domain,site_category,app_id,app_domain,app_category,device_id,device_ip,"
    "device_model,device_type,device_conn_type,C14,C15,C16,C17,C18,C19,C20,C21"
)
GOOD = "0\t1\t\t-2" + 10 * "\t7" + 25 * "\t68fd1e64" + "\t"


def criteo_lines(rows, seed=0, blank=0.2):
    rng = np.random.default_rng(seed)
    lines = []
    for _ in range(rows):
        numbers = [str(int(v)) for v in np.exp(rng.normal(2, 3, 13)) - 2]
        values = [f"{hash((j, int(v))) % 2**32:08x}" for j, v in enumerate(20 ** rng.random(26))]
        fields = ["" if rng.random() < blank else field for field in numbers + values]
        lines.append("\t".join([str(rng.integers(2)), *fields]))
    return lines


def avazu_lines(rows, seed=0, index=False):
    rng = np.random.default_rng(seed)
    lines = []
    for i in range(rows):
        values = [f"{v:08x}" for v in rng.integers(1, 30, 9) * 0x1234567]
        whole = [str(v) for v in rng.integers(-2, 200, 10)]
        hour = f"1410{rng.integers(21, 31)}{rng.integers(24):02d}"
        fields = [f"{10**18 + i}", str(rng.integers(2)), hour, "1005", str(rng.integers(3)), *values, *whole]
        fields = [field if j < 3 or rng.random() < 0.95 else "" for j, field in enumerate(fields)]
        lines.append(",".join([str(7 * i)] * index + fields))
    return lines


def write(path, lines, end="\n"):
    path.write_bytes(b"".join((line if isinstance(line, bytes) else line.encode()) + end.encode() for line in lines))
    return path


def plain(kind, path):
    """The same with csv and dicts: labels, numbers and values (None where missing) of each row."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", newline="") as file:
        rows = list(csv.reader(file, delimiter="\t" if kind == "criteo" else ",", quoting=csv.QUOTE_NONE))
    if kind == "criteo":
        label = [int(row[0]) for row in rows]
        numbers = [[max(0, int(v or 0)) for v in row[1:14]] for row in rows]
        values = [[v or None for v in row[14:]] for row in rows]
    else:
        names = rows[0]
        rows = [dict(zip(names, row[len(row) - len(names) :], strict=True)) for row in rows[1:]]
        label = [int(row["click"]) for row in rows]
        numbers = [[] for _ in rows]
        values = [[(row[n][-2:] if n == "hour" else row[n]) or None for n in names[2:]] for row in rows]
    return np.array(label), np.array(numbers), values


def same_rows(a, b):
    return all(
        np.array_equal(getattr(a.clicks(), part), getattr(b.clicks(), part)) for part in ("dense", "codes", "label")
    )


def check_against_plain(kind, path, found, training):
    """Labels, log(1 + x), and codes: 0 where missing, 1 where in no training row, else one for one."""
    label, numbers, values = plain(kind, path)
    clicks = found.clicks()
    assert len(found) == len(clicks) == len(label)
    assert np.array_equal(clicks.label, label)
    assert np.array_equal(clicks.dense, np.log1p(numbers).astype(np.float32).reshape(len(label), -1))
    assert clicks.dense.dtype == np.float32
    assert clicks.codes.dtype == np.int32
    assert clicks.label.dtype == np.uint8
    for j in range(len(found.names)):
        column = [row[j] for row in values]
        known = {v for v, t in zip(column, training, strict=True) if t and v is not None}
        codes = {}
        for value, code in zip(column, clicks.codes[:, j].tolist(), strict=True):
            if value is None:
                assert code == 0
            elif value not in known:
                assert code == 1
            else:
                assert codes.setdefault(value, code) == code
        assert sorted(codes.values()) == list(range(2, len(known) + 2))
        assert found.sizes[j] == len(known) + 2


# ---------------------------------------------------------------------------- the real samples


@pytest.mark.parametrize("path", [CRITEO_SAMPLE, *AVAZU_SAMPLES], ids=lambda path: path.name)
def test_real_samples_are_read_as_by_csv_and_dicts(path, tmp_path):
    if not path.exists():
        pytest.skip(f"no sample {path.name} under ../shared/data")
    kind = "criteo" if path == CRITEO_SAMPLE else "avazu"
    rows = len(plain(kind, path)[0])
    training = np.random.default_rng(0).random(rows) < 0.7
    found = encode(path, tmp_path / "log.clicks", kind=kind, training=training)
    check_against_plain(kind, path, found, training)
    assert found.bad_lines == 0
    assert len(found.names) == (26 if kind == "criteo" else 22)
    assert len(found.numbers) == (13 if kind == "criteo" else 0)


# ---------------------------------------------------------------------------- good lines


@pytest.mark.parametrize("kind", ["criteo", "avazu", "indexed"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_codes_are_a_bijection_of_the_values(kind, end, tmp_path):
    lines = criteo_lines(300) if kind == "criteo" else [AVAZU_HEADER, *avazu_lines(300, index=kind == "indexed")]
    path = write(tmp_path / "log.txt", lines, end)
    path.write_bytes(path.read_bytes().removesuffix(end.encode()))  # the last line may lack its end
    training = np.arange(300) % 3 != 0
    kind = kind.replace("indexed", "avazu")
    found = encode(path, tmp_path / "log.clicks", kind=kind, training=training)
    check_against_plain(kind, path, found, training)


def test_codes_are_in_the_order_of_training_rows_in_every_run(tmp_path):
    path = write(tmp_path / "log.txt", criteo_lines(3_000, blank=0.1))
    training = np.random.default_rng(1).random(3_000) < 0.5
    first, again = (encode(path, tmp_path / name, kind="criteo", training=training) for name in ("a", "b"))
    assert same_rows(first, again)
    _, _, values = plain("criteo", path)
    for j, name in enumerate(first.names):
        column = [row[j] for row, chosen in zip(values, training, strict=True) if chosen and row[j] is not None]
        assert first.values(name) == list(dict.fromkeys(column))


def test_gzip_is_read_as_text_and_a_function_says_which_rows_are_training_rows(tmp_path):
    path = write(tmp_path / "log.txt", criteo_lines(200))
    (tmp_path / "zipped").write_bytes(gzip.compress(path.read_bytes()))
    a = encode(path, tmp_path / "a", kind="criteo", training=np.arange(200) < 120)
    b = encode(tmp_path / "zipped", tmp_path / "b", kind="criteo", training=lambda rows: np.arange(rows) < 120)
    assert same_rows(a, b)
    assert a.training_crc == b.training_crc


def test_rows_are_the_first_so_many_good_ones(tmp_path):
    lines = criteo_lines(100)
    path = write(tmp_path / "log.txt", [*lines[:40], "bad", *lines[40:60], "worse", *lines[60:]])
    found = encode(path, tmp_path / "a", kind="criteo", rows=60, bad_share=0.1)
    assert (len(found), found.bad_lines) == (60, 1)
    wanted = encode(write(tmp_path / "b.txt", lines[:60]), tmp_path / "b", kind="criteo")
    assert same_rows(found, wanted)
    assert len(encode(path, tmp_path / "a", kind="criteo", rows=1_000, bad_share=0.1)) == 100


# ---------------------------------------------------------------------------- the file


def test_rows_may_be_a_slice_indices_or_a_mask(tmp_path):
    found = encode(write(tmp_path / "log.txt", criteo_lines(200)), tmp_path / "a", kind="criteo")
    clicks = found.clicks()
    rng = np.random.default_rng(0)
    chosen = [slice(10, 50), slice(None, None, -3), slice(50, 10), rng.integers(-200, 200, 300)]
    for rows in [*chosen, rng.random(200) < 0.5, np.array([], int)]:
        part, wanted = found.clicks(rows), clicks.take(rows)
        for name in ("dense", "codes", "label"):
            assert np.array_equal(getattr(part, name), getattr(wanted, name))
        assert part.sizes == found.sizes
    for rows in (np.array([0, 200]), np.array([0.5]), np.ones(3, bool)):
        with pytest.raises(UncurseError, match="pass a slice, indices, or a mask of the 200 rows"):
            found.clicks(rows)


@pytest.mark.parametrize("about", [None, b'{"schema_version": 99}', b"["])
def test_a_file_that_is_truncated_foreign_or_of_another_version_is_refused(about, tmp_path):
    path = tmp_path / "a.clicks"
    encode(write(tmp_path / "log.txt", criteo_lines(50)), path, kind="criteo")
    table = feather.read_table(path).replace_schema_metadata(about and {b"uncurse": about})
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UncurseError, match=r"a.clicks is not an encoded click log .*; encode the log again"):
        Encoded.open(path)
    feather.write_feather(table, path, compression="uncompressed")
    with pytest.raises(UncurseError, match=r"a.clicks is not an encoded click log .*; encode the log again"):
        Encoded.open(path)
    with pytest.raises(UncurseError, match=r"cannot read .*none"):
        Encoded.open(tmp_path / "none")


# ---------------------------------------------------------------------------- bad lines


def fits(line):
    """Whether a line is one of Criteo's."""
    fields = line.split("\t")
    numbers = [field for field in fields[1:14] if field]
    whole = all(field.lstrip("-").isdecimal() and abs(int(field)) < 2**31 for field in numbers)
    return len(fields) == 40 and fields[0] in ("0", "1") and whole


odd = st.text("0123456789abfAF-. _:@`/x'\"", max_size=12) | st.from_regex("-?[0-9]{1,11}", fullmatch=True)
fuzz = st.one_of(st.text("0123456789abf\t", max_size=60), st.tuples(st.integers(0, 39), odd))


@settings(max_examples=20, deadline=None)
@given(changes=st.lists(fuzz, min_size=1, max_size=7))
def test_fuzzed_lines_are_skipped_and_change_nothing_else(tmp_path_factory, changes):
    folder, good = tmp_path_factory.mktemp("fuzz"), criteo_lines(5, seed=len(changes))
    lines = good[:2]
    for i, change in enumerate(changes):
        if isinstance(change, tuple):
            fields = good[i % 5].split("\t")
            fields[change[0]] = change[1]
            change = "\t".join(fields)
        lines += [change, good[2 + i % 3]]
    wanted = [line for line in lines if fits(line)]
    found = encode(write(folder / "mixed.txt", lines), folder / "mixed", kind="criteo", bad_share=0.9)
    alone = encode(write(folder / "good.txt", wanted), folder / "good", kind="criteo", bad_share=0)
    assert found.bad_lines == len(lines) - len(wanted)
    places = [i for i, line in enumerate(lines, 1) if not fits(line)]
    assert [int(reason.split()[1].strip(":")) for reason in found.first_bad] == places[:5]
    assert same_rows(found, alone)


@pytest.mark.parametrize(
    ("kind", "field", "text", "reason"),
    [
        ("criteo", 0, "2", "label is not 0 or 1"),
        ("criteo", 0, "", "label is not 0 or 1"),
        ("criteo", 3, "1.5", "I3 is not a whole number"),
        ("criteo", 3, "2147483648", "I3 is not a whole number"),
        ("criteo", 3, "x", "I3 is not a whole number"),
        ("criteo", 20, "1\t2", "not 40 fields"),
        ("criteo", 20, "a" * 70_000 + "\t" * 39, "not 40 fields"),
        ("avazu", 1, "yes", "click is not 0 or 1"),
    ],
)
def test_bad_lines_are_named_with_their_reason(kind, field, text, reason, tmp_path):
    separator, header = ("\t", []) if kind == "criteo" else (",", [AVAZU_HEADER])
    good = GOOD if kind == "criteo" else avazu_lines(1)[0]
    fields = good.split(separator)
    fields[field] = text
    path = write(tmp_path / "log", [*header, good, separator.join(fields), good])
    found = encode(path, tmp_path / "a", kind=kind, bad_share=0.5)
    assert (len(found), found.bad_lines) == (2, 1)
    assert found.first_bad[0].startswith(f"line {2 + len(header)}: {reason}")


def test_too_many_bad_lines_are_an_error_that_leaves_nothing(tmp_path):
    path = write(tmp_path / "log.txt", [*criteo_lines(96), *["x\ty"] * 4])
    assert encode(path, tmp_path / "a", kind="criteo", bad_share=0.04).bad_lines == 4
    before = (tmp_path / "a").read_bytes()
    for name in ("a", "b"):
        with pytest.raises(UncurseError, match=r"4 of 100 lines of .*bad_share=0.03, first line 97: not 40 fields"):
            encode(path, tmp_path / name, kind="criteo", bad_share=0.03)
    assert (tmp_path / "a").read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "log.txt"]


# ---------------------------------------------------------------------------- what cannot be read or written


def test_what_is_no_log_is_refused(tmp_path):
    zipped = gzip.compress("\n".join(criteo_lines(2_000)).encode())
    (tmp_path / "half.gz").write_bytes(zipped[: len(zipped) // 2])
    write(tmp_path / "empty", [])
    write(tmp_path / "header.csv", [AVAZU_HEADER])
    write(tmp_path / "test.csv", [AVAZU_HEADER.replace("click,", "")])
    for source, kind, message in (
        ("none.txt", "criteo", "cannot read .*none.txt"),
        (".", "criteo", "cannot read"),
        ("half.gz", "criteo", "cannot read .*half.gz"),
        ("empty", "criteo", "is empty; pass a log"),
        ("header.csv", "avazu", "has no rows; pass a log"),
        ("test.csv", "avazu", "does not start with Avazu's header; pass Avazu's train file"),
    ):
        with pytest.raises(UncurseError, match=message):
            encode(tmp_path / source, tmp_path / "a.clicks", kind=kind)
    assert not (tmp_path / "a.clicks").exists()


def test_a_target_that_cannot_be_written_is_refused(tmp_path):
    path = write(tmp_path / "log.txt", criteo_lines(5))
    with pytest.raises(UncurseError, match="is the log itself; write the encoded rows to another file"):
        encode(path, path, kind="criteo")
    for target in (tmp_path, tmp_path / "none" / "a"):
        with pytest.raises(UncurseError, match="cannot write"):
            encode(path, target, kind="criteo")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "movielens"}, "kind='movielens' is unknown; choose one of criteo, avazu"),
        ({"rows": 0}, "rows=0; pass an integer, 1 or more"),
        ({"bad_share": 2}, "bad_share=2; pass a share"),
        ({"training": np.ones(4, bool)}, r"training is bool of shape \(4,\) for the 5 good rows"),
        ({"training": np.zeros(5, bool)}, "none of the 5 rows is a training row; mark some in training"),
        ({"training": np.arange(5)}, r"training is int64 of shape \(5,\) for the 5 good rows"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message, tmp_path):
    path = write(tmp_path / "log.txt", criteo_lines(5))
    with pytest.raises(UncurseError, match=message):
        encode(path, tmp_path / "a", **{"kind": "criteo", **options})
    assert [p.name for p in tmp_path.iterdir()] == ["log.txt"]


def test_without_pyarrow_the_error_says_how_to_get_it():
    code = "import sys; sys.modules['pyarrow'] = None; import uncurse_lab.logs"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert answer.stderr.endswith("UncurseError: this needs pyarrow; pip install 'uncurse[deep]'\n")
