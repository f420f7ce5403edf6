"""JSON documents are strict, and a file is replaced as a whole or not at all."""

import json
import multiprocessing
import os
import stat
import subprocess
import sys

import pytest

from uncurse import documents
from uncurse.errors import UncurseError

HEAD = {"kind": "affine", "schema_version": documents.SCHEMA_VERSION}


def test_a_document_reads_back_as_it_was_written(tmp_path):
    content = {"slope": 0.1 + 0.2, "tiny": 5e-324, "größe 😀": "[[{", "list": [1, None, True]}
    documents.write(tmp_path / "map.json", documents.dumps("affine", content))
    assert documents.read(tmp_path / "map.json") == {**HEAD, **content}


@pytest.mark.parametrize("value", [float("nan"), -float("inf"), object(), {1}])
def test_data_without_a_json_form_is_refused(value):
    with pytest.raises(UncurseError, match="affine"):
        documents.dumps("affine", {"slope": value})


def test_any_truncation_is_refused():
    text = documents.dumps("curve", {"x": [0.0, 1.0], "y": [0.0, 1.0], "left": 1.0, "right": 1.0})
    for length in range(len(text)):
        with pytest.raises(UncurseError, match=r"map\.json"):
            documents.loads(text[:length], source="map.json")


@pytest.mark.parametrize(
    ("text", "match"),
    [
        *((text, "kind") for text in ("[]", "3", "null", "{}", '{"schema_version": 2}', '{"kind": 3}')),
        *((json.dumps({**HEAD, "schema_version": v}), "schema_version") for v in (0, 3, None, "2")),
        ('{"kind": "affine"}', "schema_version None"),
        ("9" * 5_000, "digits"),
    ],
)
def test_text_that_is_no_document_is_refused(text, match):
    with pytest.raises(UncurseError, match=match):
        documents.loads(text)


# ---------------------------------------------------------------------------- paths


@pytest.mark.parametrize("path", [None, 1, 2**63, 5.0, "\0"])
def test_what_is_not_a_path_is_refused(path):
    for call in (lambda: documents.read(path), lambda: documents.write(path, "x")):
        with pytest.raises(UncurseError, match="pass the path of a file"):
            call()


def test_files_that_cannot_be_read_are_refused(tmp_path):
    (tmp_path / "m.bin").write_bytes(b"\xff\xfe\x00\x01")
    for name in (".", "absent.json", "m.bin", "x" * 300):
        with pytest.raises(UncurseError, match=name):
            documents.read(tmp_path / name)


def test_standard_input_and_pipes_can_be_read():
    code = "from uncurse import documents; print(documents.read('/dev/stdin')['kind'])"
    done = subprocess.run([sys.executable, "-c", code], input=json.dumps(HEAD), capture_output=True, text=True)
    assert done.stdout == "affine\n", done.stderr


def test_targets_that_cannot_be_written_are_refused(tmp_path):
    (tmp_path / "taken").mkdir()
    for path in (tmp_path / "taken", tmp_path / "absent" / "x.json", tmp_path / ("x" * 300)):
        with pytest.raises(UncurseError, match=path.name):
            documents.write(path, "x")
    assert os.listdir(tmp_path) == ["taken"]


# ---------------------------------------------------------------------------- atomic files


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_a_failed_write_keeps_the_old_file_and_leaves_no_other(tmp_path, error):
    path = tmp_path / "map.json"
    documents.write(path, "old")

    def fail():
        with documents.replacing(path) as temporary:
            temporary.write_text("half")
            raise error

    with pytest.raises(error):
        fail()
    with pytest.raises(UncurseError, match="surrogates"):
        documents.write(path, "\ud800")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["map.json"]


def test_a_reader_sees_the_old_file_until_the_new_one_is_whole(tmp_path):
    path = tmp_path / "map.json"
    documents.write(path, "old")
    with documents.replacing(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
        assert temporary.suffix == ".json"
    assert path.read_text() == "new"


def test_a_new_file_has_the_default_mode_and_an_old_one_keeps_its_own(tmp_path):
    plain, new, private = tmp_path / "plain", tmp_path / "new", tmp_path / "private"
    plain.write_text("x")
    private.touch(mode=0o600)
    for path in (new, private):
        documents.write(path, "x")
    assert stat.S_IMODE(new.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)
    assert stat.S_IMODE(private.stat().st_mode) == 0o600


def test_a_symbolic_link_is_kept_and_its_target_is_replaced(tmp_path):
    (tmp_path / "real.json").write_text("old")
    (tmp_path / "link.json").symlink_to(tmp_path / "real.json")
    documents.write(tmp_path / "link.json", "new")
    assert (tmp_path / "link.json").is_symlink()
    assert (tmp_path / "real.json").read_text() == "new"


def test_a_pipe_is_written_to_and_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"  # not a device of the machine, which a faulty version would replace
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    documents.write(pipe, b"x")
    assert os.read(reader, 10) == b"x"
    os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def _count(path):
    for _ in range(20):
        with documents.locked(path):
            documents.write(path, str(int(path.read_text()) + 1))


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/full"])
def test_a_device_without_an_end_is_not_read(device, tmp_path):
    (tmp_path / "link.json").symlink_to(device)
    for path in (device, tmp_path / "link.json"):
        with pytest.raises(UncurseError, match=f"cannot read {path}: it is a device"):
            documents.read(path)


def test_locked_updates_of_several_processes_are_all_kept(tmp_path):
    path = tmp_path / "count"
    documents.write(path, "0")
    workers = [multiprocessing.get_context("fork").Process(target=_count, args=(path,)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    assert path.read_text() == "80"


def test_a_file_that_cannot_be_locked_is_refused(tmp_path):
    with pytest.raises(UncurseError, match=r"state\.json"), documents.locked(tmp_path / "absent" / "state.json"):
        pass
