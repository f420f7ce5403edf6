import csv
import gzip
import re
import subprocess
import sys
import threading
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import feather

from uncurse import UncurseError
from uncurse_lab.logs import Encoded, encode, encoding
from uncurse_lab.logs import lines as reading
from uncurse_lab.logs.vocabulary import Vocabulary

SAMPLES = Path(__file__).parents[3] / "shared" / "data"
CRITEO_SAMPLE = SAMPLES / "criteo_kaggle_raw" / "criteo_train_first10k.txt.gz"
AVAZU_SAMPLES = [
    SAMPLES / "avazu" / name for name in ("avazu_train_first10k.csv.gz", "avazu_random10k_with_rowindex.csv.gz")
]
AVAZU_HEADER = (
    "id,click,hour,C1,banner_pos,site_id,site_domain,site_category,app_id,app_domain,app_category,device_id,device_ip,"
    "device_model,device_type,device_conn_type,C14,C15,C16,C17,C18,C19,C20,C21"
)
AVAZU_HEX = AVAZU_HEADER.split(",")[5:14]
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
        values = [[int(v, 16) if v else None for v in row[14:]] for row in rows]
    else:
        names = rows[0]
        rows = [dict(zip(names, row[len(row) - len(names) :], strict=True)) for row in rows[1:]]
        label = [int(row["click"]) for row in rows]
        numbers = [[] for _ in rows]
        values = [
            [
                None if not row[n] else int(row[n][-2:]) if n == "hour" else int(row[n], 16 if n in AVAZU_HEX else 10)
                for n in names[2:]
            ]
            for row in rows
        ]
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
    assert found.training_rows == training.sum()
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


def test_codes_are_in_order_of_appearance_whatever_the_block_and_threads(tmp_path):
    lines = criteo_lines(150, blank=0.1)
    path = write(tmp_path / "log.txt", lines)
    training = np.random.default_rng(1).random(150) < 0.5
    whole = encode(path, tmp_path / "whole.clicks", kind="criteo", training=training)
    for size, threads in [(1, 1), (500, 3), (20_000, 2)]:
        with mock.patch.object(reading, "BLOCK", size), mock.patch.object(encoding, "cores", lambda n=threads: n):
            found = encode(path, tmp_path / "other.clicks", kind="criteo", training=training)
        assert found.sizes == whole.sizes
        assert same_rows(found, whole)
    everything = encode(path, tmp_path / "all.clicks", kind="criteo").clicks().codes[:, 0]
    known = np.unique(everything[everything > 1], return_index=True)
    assert known[0].tolist() == list(range(2, everything.max() + 1))
    assert np.all(np.diff(known[1]) > 0)


def test_gzip_is_read_as_text_and_a_callable_says_which_rows_are_training_rows(tmp_path):
    path = write(tmp_path / "log.txt", criteo_lines(200))
    (tmp_path / "log.gz").write_bytes(gzip.compress(path.read_bytes()))
    a = encode(path, tmp_path / "a", kind="criteo", training=np.arange(200) < 120)
    with mock.patch.object(reading, "BLOCK", 4096):
        training = lambda start, stop: np.arange(start, stop) < 120  # noqa: E731
        b = encode(tmp_path / "log.gz", tmp_path / "b", kind="criteo", training=training)
    assert same_rows(a, b)
    assert (a.training_rows, a.training_crc) == (b.training_rows, b.training_crc)


def test_the_rule_of_all_rows_knows_every_value(tmp_path):
    path = write(tmp_path / "log.txt", criteo_lines(200))
    found = encode(path, tmp_path / "a", kind="criteo", training=np.arange(200) < 5, vocabulary="all")
    check_against_plain("criteo", path, found, np.ones(200, bool))
    assert found.vocabulary == "all"
    assert found.training_rows == 5
    assert not (found.clicks().codes == 1).any()


def test_rows_are_the_first_so_many_good_ones(tmp_path):
    lines = criteo_lines(100)
    path = write(tmp_path / "log.txt", [*lines[:40], "bad", *lines[40:60], "worse", *lines[60:]])
    for size in (1_000, 1 << 20):
        with mock.patch.object(reading, "BLOCK", size):
            found = encode(path, tmp_path / "a", kind="criteo", rows=60, bad_share=0.1)
        assert (len(found), found.lines, found.bad_lines) == (60, 61, 1)
        wanted = encode(write(tmp_path / "b.txt", lines[:60]), tmp_path / "b", kind="criteo").clicks()
        assert np.array_equal(found.clicks().codes, wanted.codes)
    assert len(encode(path, tmp_path / "a", kind="criteo", rows=1_000, bad_share=0.1)) == 100


def test_large_numbers_and_zeros_in_front_keep_their_value(tmp_path):
    numbers = ["2147483647", "00000000012", "-2147483647", "-0", "00", "99999999", "100000000", "65536", "255", "256"]
    line = "\t".join(["1", *numbers, "1", "2", "3", *["AbC"] * 13, *["0000abc"] * 13])
    found = encode(write(tmp_path / "log.txt", [line]), tmp_path / "a", kind="criteo").clicks()
    wanted = [2147483647, 12, 0, 0, 0, 99999999, 100000000, 65536, 255, 256, 1, 2, 3]
    assert np.array_equal(found.dense[0], np.log1p(wanted).astype(np.float32))
    pair = [line, line.replace("AbC", "ABC").replace("0000abc", "ABC")]
    assert encode(write(tmp_path / "log.txt", pair), tmp_path / "a", kind="criteo").sizes == (3,) * 26


# ---------------------------------------------------------------------------- the file


def test_rows_may_be_a_slice_indices_or_a_mask(tmp_path):
    found = encode(write(tmp_path / "log.txt", criteo_lines(200)), tmp_path / "a", kind="criteo")
    clicks = found.clicks()
    rng = np.random.default_rng(0)
    chosen = [slice(10, 50), slice(None, None, -3), slice(50, 10), rng.integers(-200, 200, 300)]
    for rows in [*chosen, rng.random(200) < 0.5, np.array([], int)]:
        part, wanted = found.clicks(rows), clicks.take(rows)
        assert np.array_equal(part.dense, wanted.dense)
        assert np.array_equal(part.codes, wanted.codes)
        assert np.array_equal(part.label, wanted.label)
        assert part.sizes == found.sizes


@pytest.mark.parametrize("rows", [np.array([0, 5]), np.array([-6]), np.array([0.5]), np.ones(3, bool)])
def test_rows_that_are_not_there_are_refused(rows, tmp_path):
    found = encode(write(tmp_path / "log.txt", criteo_lines(5)), tmp_path / "a", kind="criteo")
    with pytest.raises(UncurseError, match="pass a slice, indices, or a mask of the 5 rows"):
        found.clicks(rows)


def test_a_truncated_or_foreign_file_is_refused(tmp_path):
    path = tmp_path / "a.clicks"
    encode(write(tmp_path / "log.txt", criteo_lines(50)), path, kind="criteo")
    content = path.read_bytes()
    foreign = [b"", b"PAR1", b"label\t1\n"]
    for part in [*(content[:size] for size in (len(content) - 1, len(content) // 2, 1_000, 12)), *foreign]:
        path.write_bytes(part)
        with pytest.raises(
            UncurseError, match=r"a.clicks is truncated or not an encoded click log .*; encode the log again"
        ):
            Encoded.open(path)
    with pytest.raises(UncurseError, match=r"cannot read .*none: No such file"):
        Encoded.open(tmp_path / "none")


@pytest.mark.parametrize("about", [None, b"{}", b'{"schema_version": 99}', b"[", b"[1]", b'{"schema_version": 1}'])
def test_an_arrow_file_of_another_origin_or_version_is_refused(about, tmp_path):
    path = tmp_path / "a.clicks"
    encode(write(tmp_path / "log.txt", criteo_lines(50)), path, kind="criteo")
    table = feather.read_table(path).replace_schema_metadata(about and {b"uncurse": about})
    feather.write_feather(table, path, compression="uncompressed")
    with pytest.raises(
        UncurseError, match=r"a.clicks is not an encoded click log with schema_version 1; encode the log"
    ):
        Encoded.open(path)


def test_the_file_is_an_arrow_file_that_holds_the_values(tmp_path):
    found = encode(write(tmp_path / "log.txt", criteo_lines(20)), tmp_path / "a", kind="criteo")
    table = feather.read_table(tmp_path / "a")
    _, numbers, values = plain("criteo", tmp_path / "log.txt")
    assert table.column_names == ["label", *found.numbers, *found.names]
    for j, name in enumerate(found.numbers):
        assert table[name].to_pylist() == numbers[:, j].tolist()
    for j, name in enumerate(found.names):
        assert table[name].to_pylist() == [row[j] for row in values]
        assert found.values(name).tolist() == list(dict.fromkeys(row[j] for row in values if row[j] is not None))
    with pytest.raises(UncurseError, match=r"there is no category 'C27' in .*; choose one of C1, "):
        found.values("C27")


# ---------------------------------------------------------------------------- bad lines


HEX, NUMBER, SHORT = "[0-9a-fA-F]{0,8}", "(-?0*[0-9]{1,10})?", "(-?[0-9]{1,8})?"
HOUR = "([0-9]{6}([01][0-9]|2[0-3]))?"
PATTERNS = {
    "criteo": ["[01]", *[NUMBER] * 13, *[HEX] * 26],
    "avazu": [".*", "[01]", HOUR, SHORT, SHORT, *[HEX] * 9, *[SHORT] * 10],
}


def fits(kind, line):
    """Whether a line is one of the log's, by regular expressions."""
    separator = "\t" if kind == "criteo" else ","
    line = line.removesuffix(b"\r")
    if any(byte not in (ord(separator), *range(32, 127)) for byte in line):
        return False
    fields = line.decode().split(separator)
    return len(fields) == len(PATTERNS[kind]) and all(
        re.fullmatch(pattern, field) and (pattern != NUMBER or abs(int(field or 0)) < 2**31)
        for pattern, field in zip(PATTERNS[kind], fields, strict=True)
    )


odd = st.text("0123456789abfgAFG-+. _:@`/x'\"", max_size=12) | st.from_regex("-?[0-9]{1,11}", fullmatch=True)
fuzz = st.one_of(st.binary(max_size=60), st.tuples(st.integers(0, 39), odd), st.sampled_from(["\r", "\t,", "\x00"]))


@settings(max_examples=80, deadline=None)
@given(
    kind=st.sampled_from(["criteo", "avazu"]),
    changes=st.lists(fuzz, min_size=1, max_size=7),
    size=st.sampled_from([40, 1_000, 1 << 16]),
)
def test_fuzzed_lines_are_skipped_and_change_nothing_else(tmp_path_factory, kind, changes, size):
    folder = tmp_path_factory.mktemp("fuzz")
    separator = "\t" if kind == "criteo" else ","
    good = (criteo_lines if kind == "criteo" else avazu_lines)(5, seed=len(changes))
    lines = [line.encode() for line in good[:2]]
    for i, change in enumerate(changes):
        if isinstance(change, tuple):
            fields = good[i % 5].split(separator)
            fields[change[0] % len(fields)] = change[1]
            change = separator.join(fields).encode()
        lines += [good[0].encode() + change.encode() if isinstance(change, str) else change, good[2 + i % 3].encode()]
    lines = b"\n".join(lines).split(b"\n")
    wanted = [line for line in lines if fits(kind, line)]
    header = [AVAZU_HEADER] * (kind == "avazu")
    with mock.patch.object(reading, "BLOCK", size):
        found = encode(write(folder / "mixed.txt", header + lines), folder / "mixed", kind=kind, bad_share=1)
    alone = encode(write(folder / "good.txt", header + wanted), folder / "good", kind=kind, bad_share=0)
    assert (found.lines, found.bad_lines) == (len(lines), len(lines) - len(wanted))
    assert "not readable" not in [reason for _, reason in found.first_bad]
    places = [i + 1 + len(header) for i, line in enumerate(lines) if not fits(kind, line)]
    assert [line for line, _ in found.first_bad] == places[: encoding.SHOWN]
    assert same_rows(found, alone)


@settings(max_examples=50, deadline=None)
@given(content=st.binary(max_size=300), kind=st.sampled_from(["criteo", "avazu"]), head=st.booleans())
def test_any_bytes_give_rows_or_our_error(tmp_path_factory, content, kind, head):
    folder = tmp_path_factory.mktemp("bytes")
    (folder / "log").write_bytes(AVAZU_HEADER.encode() * head + b"\n" * head + content)
    with pytest.raises(UncurseError):
        encode(folder / "log", folder / "log.clicks", kind=kind)
    assert [path.name for path in folder.iterdir()] == ["log"]


@pytest.mark.parametrize(
    ("kind", "field", "text", "reason"),
    [
        ("criteo", 0, "2", "label is '2'"),
        ("criteo", 0, "", "label is ''"),
        ("criteo", 3, "1.5", "I3 is '1.5'"),
        ("criteo", 3, "2147483648", "I3 is '2147483648'"),
        ("criteo", 3, " 7", "I3 is ' 7'"),
        ("criteo", 3, "0x7", "I3 is '0x7'"),
        ("criteo", 3, "-2147483648", "I3 is '-2147483648'"),
        ("criteo", 14, "68fd1e6g", "C1 is '68fd1e6g'"),
        ("criteo", 39, "123456789", "C26 is '123456789'"),
        ("criteo", 20, "a\x00b", "holds the byte 0x00"),
        ("criteo", 20, "é", "holds the byte 0xa9"),
        ("criteo", 20, "1\t2", "41 fields instead of 40"),
        ("criteo", 20, "a" * 70_000, "longer than 65,536 bytes"),
        ("avazu", 0, "\x7f", "holds the byte 0x7f"),
        ("avazu", 2, "14102124", "hour is '14102124'"),
        ("avazu", 2, "-4102100", "hour is '-4102100'"),
        ("avazu", 16, "1e5", "C14 is '1e5'"),
        ("avazu", 16, "-", "C14 is '-'"),
        ("avazu", 16, "012345678", "C14 is '012345678'"),
        ("avazu", 5, "-1", "site_id is '-1'"),
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
    ((line, named),) = found.first_bad
    assert line == 2 + len(header)
    assert named.startswith(reason)


def test_numbers_of_avazu_are_told_apart_by_sign_and_value(tmp_path):
    values = ["1", "-1", "01", "0", "-0", "99999999", "-99999999", ""]
    lines = []
    for value in values:
        fields = avazu_lines(1)[0].split(",")
        lines.append(",".join([*fields[:-1], value]))
    codes = encode(write(tmp_path / "a.csv", [AVAZU_HEADER, *lines]), tmp_path / "a", kind="avazu").clicks().codes
    assert codes[:, -1].tolist() == [2, 3, 2, 4, 4, 5, 6, 0]


def test_a_carriage_return_alone_ends_no_line(tmp_path):
    path = write(tmp_path / "log.txt", [GOOD, f"{GOOD}\r{GOOD}", GOOD])
    found = encode(path, tmp_path / "a", kind="criteo", bad_share=0.5)
    assert (len(found), found.lines) == (2, 3)
    assert found.first_bad == ((2, "holds the byte 0x0d, which is no text"),)


def test_a_line_of_many_blocks_is_one_bad_line(tmp_path):
    path = write(tmp_path / "log.txt", [GOOD, "7" * 400_000, GOOD, "8" * 70_000])
    for size in (1_000, 30_000, 1 << 20):
        with mock.patch.object(reading, "BLOCK", size):
            found = encode(path, tmp_path / "a", kind="criteo", bad_share=0.5)
        assert (len(found), found.lines) == (2, 4)
        assert found.first_bad == ((2, "longer than 65,536 bytes"), (4, "longer than 65,536 bytes"))


def test_too_many_bad_lines_are_an_error_that_leaves_nothing(tmp_path):
    path = write(tmp_path / "log.txt", [*criteo_lines(96), *["x\ty"] * 4])
    assert encode(path, tmp_path / "a", kind="criteo", bad_share=0.04).bad_lines == 4
    before = (tmp_path / "a").read_bytes()
    message = (
        "4 of 100 lines of .*log.txt are bad, 4.0% and more than bad_share=0.03, first line 97: 2 fields instead of 40"
        "; check the kind of log, repair it, or raise bad_share"
    )
    with pytest.raises(UncurseError, match=message):
        encode(path, tmp_path / "a", kind="criteo", bad_share=0.03)
    with pytest.raises(UncurseError, match=message):
        encode(path, tmp_path / "b", kind="criteo", bad_share=0.03)
    assert (tmp_path / "a").read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "log.txt"]


def test_a_log_of_another_kind_is_refused_before_it_is_read_to_its_end(tmp_path):
    path = write(tmp_path / "log.csv", [AVAZU_HEADER, *avazu_lines(100) * 100])
    with mock.patch.object(reading, "BLOCK", 1 << 18), pytest.raises(UncurseError) as caught:
        encode(path, tmp_path / "a", kind="criteo")
    bad = int(re.match("([0-9,]+) of", str(caught.value))[1].replace(",", ""))
    assert 1_000 <= bad < 10_000


# ---------------------------------------------------------------------------- what cannot be read or written


def test_what_is_no_log_is_refused(tmp_path):
    target = tmp_path / "a.clicks"
    with pytest.raises(UncurseError, match=r"there is no file .*none.txt; pass the path"):
        encode(tmp_path / "none.txt", target, kind="criteo")
    with pytest.raises(UncurseError, match="is a folder; pass the log in it"):
        encode(tmp_path, target, kind="criteo")
    with pytest.raises(UncurseError, match="is empty; pass a log with at least one line"):
        encode(write(tmp_path / "empty", []), target, kind="criteo")
    with pytest.raises(UncurseError, match="has no good line; pass a log with at least one"):
        encode(write(tmp_path / "header.csv", [AVAZU_HEADER]), target, kind="avazu")
    with pytest.raises(UncurseError, match="has no good line; pass a log with at least one"):
        encode(write(tmp_path / "bad.txt", ["x"]), target, kind="criteo", bad_share=1)
    with pytest.raises(
        UncurseError, match="does not start with Avazu's header: it lacks click; pass Avazu's train file"
    ):
        encode(write(tmp_path / "test.csv", [AVAZU_HEADER.replace("click,", "")]), target, kind="avazu")
    names = ",".join(reversed(AVAZU_HEADER.split(",")))
    with pytest.raises(UncurseError, match="it has 24 names in another order"):
        encode(write(tmp_path / "order.csv", [names]), target, kind="avazu")
    assert not target.exists()


def test_a_broken_gzip_file_is_refused(tmp_path):
    content = gzip.compress(b"\n".join(line.encode() for line in criteo_lines(2_000)))
    for broken in (content[:-20], content[: len(content) // 2], content[:5_000] + b"xxxx" + content[5_004:]):
        (tmp_path / "log.gz").write_bytes(broken)
        with pytest.raises(UncurseError, match=r"log.gz is not a whole gzip file .*; fetch it again"):
            encode(tmp_path / "log.gz", tmp_path / "a", kind="criteo")
    assert [path.name for path in tmp_path.iterdir()] == ["log.gz"]


def test_a_target_that_cannot_be_written_is_refused(tmp_path):
    path = write(tmp_path / "log.txt", criteo_lines(5))
    with pytest.raises(UncurseError, match="is a folder; pass a file to write"):
        encode(path, tmp_path, kind="criteo")
    with pytest.raises(UncurseError, match="is the log itself; write the encoded rows to another file"):
        encode(path, path, kind="criteo")
    with pytest.raises(UncurseError, match=r"cannot write .*a: No such file"):
        encode(path, tmp_path / "none" / "a", kind="criteo")


def test_an_interrupt_leaves_no_file_and_no_thread(tmp_path):
    path = write(tmp_path / "log.txt", criteo_lines(100))
    threads = threading.active_count()
    with mock.patch.object(reading, "BLOCK", 1_000), pytest.raises(KeyboardInterrupt):
        encode(path, tmp_path / "a", kind="criteo", progress=mock.Mock(side_effect=KeyboardInterrupt))
    assert [p.name for p in tmp_path.iterdir()] == ["log.txt"]
    assert threading.active_count() == threads


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "movielens"}, "kind='movielens' is unknown; choose one of criteo, avazu"),
        ({"vocabulary": "test"}, "vocabulary='test' is unknown; choose one of training, all"),
        ({"rows": 0}, "rows=0; pass an integer, 1 or more"),
        ({"bad_share": 2}, "bad_share=2 is not a share; pass a number from 0 to 1"),
        ({"bad_share": float("nan")}, "bad_share is nan"),
        ({"training": np.ones(4, bool)}, r"training gave bool of shape \(4,\) for rows 0 to 5"),
        ({"training": np.ones(6, bool)}, r"training has shape \(6,\) and .*log.txt has 5 good rows"),
        ({"training": np.zeros(5, bool)}, "none of the 5 rows is a training row.*; mark some in training"),
        ({"training": np.arange(5)}, r"training gave int64 of shape \(5,\) for rows 0 to 5; a mask is bool"),
        (
            {"training": lambda start, stop: [True]},
            r"training gave bool of shape \(1,\) .*a mask is bool, of shape \(5,\)",
        ),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message, tmp_path):
    path = write(tmp_path / "log.txt", criteo_lines(5))
    with pytest.raises(UncurseError, match=message):
        encode(path, tmp_path / "a", **{"kind": "criteo", **options})
    assert [p.name for p in tmp_path.iterdir()] == ["log.txt"]


# ---------------------------------------------------------------------------- vocabularies


@settings(max_examples=100, deadline=None)
@given(
    batches=st.lists(st.lists(st.integers(1, (1 << 63) - 1) | st.integers(0, 40), max_size=60), max_size=8),
    copies=st.sampled_from([1, 30]),
)
def test_a_vocabulary_numbers_like_a_dict(batches, copies):
    vocabulary, numbers = Vocabulary(), {0: 0}
    for batch in batches:
        wanted = [numbers.setdefault(key, len(numbers) + 1) for key in batch * copies]
        assert vocabulary.number(np.array(batch * copies, np.int64)).tolist() == wanted
    assert vocabulary.size == len(numbers) + 1


def test_without_pyarrow_the_error_says_how_to_get_it():
    code = "import sys; sys.modules['pyarrow'] = None; import uncurse_lab.logs"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert answer.stderr.endswith("UncurseError: this needs pyarrow; pip install 'uncurse[deep]'\n")
