import glob
import json
import os
import stat
import subprocess
import sys

import numpy as np
import pytest

from uncurse import documents
from uncurse.errors import UncurseError

GOOD = documents.dumps("affine", {"slope": 1.0})


def test_a_document_reads_back_as_it_was_written(tmp_path):
    path = tmp_path / "map.json"
    content = {"slope": 0.1 + 0.2, "tiny": 5e-324, "name": "größe", "list": [1, None, True]}
    for checksum in (False, True):
        documents.write(path, documents.dumps("affine", content, checksum))
        assert documents.read(path) == {"kind": "affine", "schema_version": documents.SCHEMA_VERSION, **content}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), object(), {1}])
@pytest.mark.parametrize("checksum", [False, True])
def test_data_without_a_json_form_is_refused(value, checksum):
    with pytest.raises(UncurseError, match=r"cannot write this affine as JSON: .*; pass plain, finite data"):
        documents.dumps("affine", {"slope": value}, checksum)


def test_any_truncation_is_refused():
    text = documents.dumps("curve", {"x": [0.0, 1.0], "y": [0.0, 1.0], "left": 1.0, "right": 1.0})
    for length in range(len(text)):
        with pytest.raises(UncurseError, match=r"map\.json is not valid JSON .*truncated.*Write it again"):
            documents.loads(text[:length], source="map.json")


@pytest.mark.parametrize("text", ["[]", "3", '"kind"', "null", "{}", '{"schema_version": 2}', '{"kind": 3}'])
def test_json_without_a_kind_is_refused(text):
    with pytest.raises(UncurseError, match="m is JSON but not an uncurse document; it has no 'kind'"):
        documents.loads(text, source="m")


@pytest.mark.parametrize("text", [None, 5, b"{}", ["{}"]])
def test_a_document_must_be_text(text):
    with pytest.raises(UncurseError, match=r"m is of type \w+; pass the text of a JSON document"):
        documents.loads(text, source="m")


@pytest.mark.parametrize("version", [0, 1, 3, 99, None, "2", [2], True, 2.0])
def test_other_schema_versions_are_refused(version):
    text = json.dumps({"kind": "affine", "schema_version": version})
    with pytest.raises(UncurseError, match=r"m has schema_version .* and this release reads 2; upgrade or fit again"):
        documents.loads(text, source="m")


def test_true_is_not_schema_version_1(monkeypatch):
    monkeypatch.setattr(documents, "SCHEMA_VERSION", 1)
    with pytest.raises(UncurseError, match="schema_version True"):
        documents.loads('{"kind": "affine", "schema_version": true}')


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ('{"a": 1, "a": 2}', "the key 'a' occurs twice"),
        ("NaN", "NaN is not a JSON number"),
        ("Infinity", "Infinity is not a JSON number"),
        ("-Infinity", "-Infinity is not a JSON number"),
        ("1e999", "the number 1e999 is too large"),
        ("1" * 5000, "digits"),
        ("1" * 400 + ".0", "the number 1{20} is too large"),
    ],
)
def test_ambiguous_keys_and_unusual_numbers_are_refused(value, message):
    text = f'{{"kind": "affine", "schema_version": 2, "value": {value}}}'
    with pytest.raises(UncurseError, match=rf"m is not valid JSON \(.*{message}.*Write it again"):
        documents.loads(text, source="m")


def test_json_nested_too_deeply_is_refused():
    for text in ("[" * 200_000, '{"a":' * 200_000):
        with pytest.raises(UncurseError, match="m is nested too deeply to be an uncurse document; write it again"):
            documents.loads(text, source="m")


# ---------------------------------------------------------------------------- checksums

CONTENT = {"b": [1.5, -2e-300, 3], "a": {"2": "größe", "10": None}, "c": True}


def test_every_changed_digit_fails_the_checksum():
    text = documents.dumps("cells", {"weight": [12345.678, 9.0], "rows": 24680}, checksum=True)
    start = text.index('"checksum"')
    for i, character in enumerate(text):
        if i > start and character.isdigit():
            changed = text[:i] + str((int(character) + 1) % 10) + text[i + 1 :]
            with pytest.raises(
                UncurseError, match="m does not match its checksum, so it was damaged or edited; write it"
            ):
                documents.loads(changed, source="m")


def test_the_checksum_ignores_the_order_of_keys_and_white_space():
    content = json.loads(documents.dumps("cells", CONTENT, checksum=True))
    assert len(content["checksum"]) == 8
    reordered = dict(reversed(content.items()))
    assert documents.loads(json.dumps(reordered, indent=2)) == {"kind": "cells", "schema_version": 2, **CONTENT}


def test_the_checksum_holds_for_keys_that_json_turns_into_text():
    text = documents.dumps("cells", {"groups": {10: 1, 9: 2}}, checksum=True)
    assert documents.loads(text)["groups"] == {"10": 1, "9": 2}


@pytest.mark.parametrize("checksum", ["", "00000000", 5, True, []])
def test_a_wrong_checksum_is_refused(checksum):
    text = json.dumps({"kind": "affine", "schema_version": 2, "checksum": checksum, "slope": 1.0})
    with pytest.raises(UncurseError, match="does not match its checksum"):
        documents.loads(text)


# ---------------------------------------------------------------------------- files


def test_a_missing_schema_version_is_refused():
    with pytest.raises(UncurseError, match="schema_version None"):
        documents.loads('{"kind": "affine"}')


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(UncurseError, match=r"cannot read .*absent\.json: No such file"):
        documents.read(tmp_path / "absent.json")


@pytest.mark.parametrize("path", [None, 5.0, "\0"])
def test_a_path_that_is_not_a_path_is_refused(path):
    for call in (lambda: documents.read(path), lambda: documents.write(path, "x")):
        with pytest.raises(UncurseError, match=r"cannot (read|write) .*; pass the path of a file"):
            call()


def test_a_folder_cannot_be_read(tmp_path):
    with pytest.raises(UncurseError, match="cannot read"):
        documents.read(tmp_path)


def test_a_binary_file_is_refused(tmp_path):
    (tmp_path / "m.bin").write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(UncurseError, match=r"m\.bin is not a text file; pass a JSON document"):
        documents.read(tmp_path / "m.bin")


def test_writing_to_a_missing_folder_is_refused(tmp_path):
    with pytest.raises(UncurseError, match=r"cannot write .*x\.json: No such file"):
        documents.write(tmp_path / "absent" / "x.json", GOOD)


def test_a_folder_cannot_be_overwritten_by_a_file(tmp_path):
    (tmp_path / "taken").mkdir()
    with pytest.raises(UncurseError, match="cannot write"):
        documents.write(tmp_path / "taken", GOOD)
    assert os.listdir(tmp_path) == ["taken"]


class Failure(Exception):
    pass


@pytest.mark.parametrize("step", ["fsync", "replace", "chmod"])
@pytest.mark.parametrize("error", [Failure, KeyboardInterrupt])
def test_a_failed_write_keeps_the_old_file_and_removes_the_temporary_one(tmp_path, monkeypatch, step, error):
    path = tmp_path / "map.json"
    documents.write(path, "old")

    def fail(*_, **__):
        raise error

    monkeypatch.setattr(documents.os, step, fail)
    with pytest.raises(error):
        documents.write(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["map.json"]


def test_text_that_cannot_be_encoded_keeps_the_old_file(tmp_path):
    path = tmp_path / "map.json"
    documents.write(path, "old")
    with pytest.raises(UncurseError, match=r"cannot write .*surrogates not allowed; pass the path of a file and text"):
        documents.write(path, "\ud800")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["map.json"]


def test_a_reader_never_sees_a_partial_file(tmp_path, monkeypatch):
    path = tmp_path / "map.json"
    documents.write(path, "old")
    seen = []
    replace = os.replace

    def look(source, target):
        seen.append(path.read_text())
        replace(source, target)
        seen.append(path.read_text())

    monkeypatch.setattr(documents.os, "replace", look)
    documents.write(path, "new")
    assert seen == ["old", "new"]


def test_a_new_file_has_the_default_mode(tmp_path):
    plain, ours = tmp_path / "plain", tmp_path / "ours"
    plain.write_text("x")
    documents.write(ours, "x")
    assert stat.S_IMODE(ours.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


def test_a_symbolic_link_is_kept_and_its_target_is_replaced(tmp_path):
    (tmp_path / "real.json").write_text("old")
    (tmp_path / "link.json").symlink_to(tmp_path / "real.json")
    documents.write(tmp_path / "link.json", "new")
    assert (tmp_path / "link.json").is_symlink()
    assert (tmp_path / "real.json").read_text() == "new"


def test_a_file_keeps_its_mode_and_a_pipe_is_not_replaced(tmp_path):
    private = tmp_path / "private.json"
    private.touch(mode=0o600)
    documents.write(private, "x")
    assert private.stat().st_mode & 0o777 == 0o600
    pipe = tmp_path / "pipe"  # not a device of the machine, which a faulty version would replace
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    documents.write(pipe, "x")
    assert os.read(reader, 10) == b"x"
    os.close(reader)
    assert not os.path.isfile(pipe)


def test_folders_and_long_names_are_refused(tmp_path):
    with pytest.raises(UncurseError, match="Is a directory"):
        documents.write(tmp_path, "x")
    with pytest.raises(UncurseError, match="File name too long"):
        documents.write(tmp_path / ("x" * 300), "x")


def dead_process():
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_what_a_killed_process_left_is_removed_by_the_next_write(tmp_path):
    def left_by(pid, host=None):
        with documents.temporary_folder(tmp_path) as folder:
            name = folder.name.replace(f"-{os.getpid()}-", f"-{pid}-")
        folder = tmp_path / (name if host is None else name.replace(name.split("-")[1], host, 1))
        folder.mkdir()
        (folder / "file.parquet").write_text("x")
        return folder.name

    dead = dead_process()
    left_by(dead)
    kept = {left_by(os.getpid()), left_by(dead, "elsewhere"), left_by(1)}
    (tmp_path / ".uncurse-notes").write_text("x")
    documents.write(tmp_path / "map.json", "x")
    assert set(os.listdir(tmp_path)) == {*kept, ".uncurse-notes", "map.json"}


def test_a_killed_process_leaves_nothing_that_a_glob_reads(tmp_path):
    code = (
        "import os, signal, sys\nfrom uncurse.documents import replacing\n"
        "with replacing(sys.argv[1]) as file: file.write_text('x'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "log.parquet")], check=False)
    assert len(os.listdir(tmp_path)) == 1
    assert not glob.glob(str(tmp_path / "**" / "*.parquet"), recursive=True)
    documents.write(tmp_path / "map.json", "x")
    assert os.listdir(tmp_path) == ["map.json"]


def test_long_paths_are_refused_when_read(tmp_path):
    with pytest.raises(UncurseError, match="File name too long"):
        documents.read(tmp_path / ("x" * 300))


@pytest.mark.parametrize("text", ["9" * 5_000, "[" * 200_000, '{"a":' * 200_000])
def test_huge_numbers_and_deep_nesting_are_refused(text):
    with pytest.raises(UncurseError, match=r"is not valid JSON|is nested too deeply"):
        documents.loads(text)


@pytest.mark.parametrize("error", [KeyError("a"), TypeError("a"), ValueError("a"), OverflowError("a"), RecursionError])
def test_errors_while_reading_fields_become_ours(error):
    with (
        pytest.raises(UncurseError, match=r"this is not a complete cells document .*; write it again"),
        documents.reading("cells"),
    ):
        raise error


@pytest.mark.parametrize("path", [2**63, 1, np.ma.masked_array([1.0]), None])
def test_a_path_that_is_no_path_is_refused_before_anything_is_written(path):
    with pytest.raises(UncurseError, match=r"(?s)cannot write .*; pass the path of a file and text"):
        documents.write(path, "text")


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":[' * 50_000, '{"kind": ' + "[" * 60 + "]" * 60 + "}"])
def test_deep_nesting_is_refused_for_any_recursion_limit(text):
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(1_000_000)
    try:
        with pytest.raises(UncurseError, match="is nested too deeply to be an uncurse document; write it again"):
            documents.loads(text)
    finally:
        sys.setrecursionlimit(limit)


def test_brackets_inside_strings_are_no_nesting():
    content = {"a": "[" * 100, 'b"[': ["\\", "{" * 60], "many": [[i] for i in range(200)]}
    assert documents.loads(documents.dumps("k", content))["a"] == "[" * 100
