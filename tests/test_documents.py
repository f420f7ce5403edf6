import json
import os
import stat

import pytest

from uncurse import documents
from uncurse.errors import UncurseError

GOOD = documents.dumps("affine", {"slope": 1.0})


def test_a_document_reads_back_as_it_was_written(tmp_path):
    path = tmp_path / "map.json"
    content = {"slope": 0.1 + 0.2, "tiny": 5e-324, "name": "größe", "list": [1, None, True]}
    documents.write(path, documents.dumps("affine", content))
    assert documents.read(path) == {"kind": "affine", "schema_version": documents.SCHEMA_VERSION, **content}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_json_is_never_written(value):
    with pytest.raises(ValueError):
        documents.dumps("affine", {"slope": value})


def test_any_truncation_is_refused():
    text = documents.dumps("curve", {"x": [0.0, 1.0], "y": [0.0, 1.0], "left": 1.0, "right": 1.0})
    for length in range(len(text)):
        with pytest.raises(UncurseError, match=r"map\.json is not valid JSON .*truncated.*Write it anew"):
            documents.loads(text[:length], source="map.json")


@pytest.mark.parametrize("text", ["[]", "3", '"kind"', "null", "{}", '{"schema_version": 1}'])
def test_json_of_another_kind_is_refused(text):
    with pytest.raises(UncurseError, match="m is JSON but not an uncurse document; it has no 'kind'"):
        documents.loads(text, source="m")


@pytest.mark.parametrize("version", [0, 2, 99, None, "1", [1]])
def test_an_unknown_schema_version_is_named_with_the_remedy(version):
    text = json.dumps({"kind": "affine", "schema_version": version})
    with pytest.raises(UncurseError, match=r"m has schema_version .* and this release reads 1; upgrade or fit again"):
        documents.loads(text, source="m")


def test_a_missing_schema_version_is_refused():
    with pytest.raises(UncurseError, match="schema_version None"):
        documents.loads('{"kind": "affine"}')


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UncurseError, match=r"cannot read .*absent\.json: No such file"):
        documents.read(tmp_path / "absent.json")


def test_a_folder_is_no_document(tmp_path):
    with pytest.raises(UncurseError, match="cannot read"):
        documents.read(tmp_path)


def test_a_binary_file_is_refused(tmp_path):
    (tmp_path / "m.bin").write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(UncurseError, match=r"m\.bin is not a text file; pass a JSON document"):
        documents.read(tmp_path / "m.bin")


def test_a_folder_that_is_not_there_is_named_when_writing(tmp_path):
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
def test_a_failing_write_leaves_the_old_file_and_no_temporary(tmp_path, monkeypatch, step, error):
    path = tmp_path / "map.json"
    documents.write(path, "old")

    def fail(*_, **__):
        raise error

    monkeypatch.setattr(documents.os, step, fail)
    with pytest.raises(error):
        documents.write(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["map.json"]


def test_text_that_cannot_be_encoded_leaves_the_old_file_and_no_temporary(tmp_path):
    path = tmp_path / "map.json"
    documents.write(path, "old")
    with pytest.raises(UnicodeEncodeError):
        documents.write(path, "\ud800")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["map.json"]


def test_a_reader_never_sees_half_a_file(tmp_path, monkeypatch):
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


def test_a_written_file_has_the_mode_of_a_plain_file(tmp_path):
    plain, ours = tmp_path / "plain", tmp_path / "ours"
    plain.write_text("x")
    documents.write(ours, "x")
    assert stat.S_IMODE(ours.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


def test_a_link_stays_and_its_target_is_written(tmp_path):
    (tmp_path / "real.json").write_text("old")
    (tmp_path / "link.json").symlink_to(tmp_path / "real.json")
    documents.write(tmp_path / "link.json", "new")
    assert (tmp_path / "link.json").is_symlink()
    assert (tmp_path / "real.json").read_text() == "new"


def test_a_file_keeps_its_mode_and_a_pipe_stays_one(tmp_path):
    private = tmp_path / "private.json"
    private.touch(mode=0o600)
    documents.write(private, "x")
    assert private.stat().st_mode & 0o777 == 0o600
    documents.write("/dev/null", "x")
    assert not os.path.isfile("/dev/null")


def test_a_folder_and_a_long_name_are_refused_in_words(tmp_path):
    with pytest.raises(UncurseError, match="Is a directory"):
        documents.write(tmp_path, "x")
    with pytest.raises(UncurseError, match="File name too long"):
        documents.write(tmp_path / ("x" * 300), "x")
