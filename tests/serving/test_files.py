"""Saved models on the command line: folded whole or not at all, verified, and never believed."""

import contextlib
import io
import json
import pickle
import subprocess
import sys
import zipfile
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
from scipy.special import expit
from typer.testing import CliRunner

from uncurse import Affine, Curve, UncurseError
from uncurse.cli import app
from uncurse.serving import fold_file, verify, verify_files
from uncurse.serving.fold import files
from uncurse.serving.fold.files import family

MAP = Affine(0.8, -0.3)


@pytest.fixture
def without_processes(monkeypatch):
    """Whole models of CatBoost and XGBoost are read in this process: each process of their own takes a second."""

    def run(words, *, input, **options):
        library, *paths = words[words.index(files.__name__) + 1 :]
        monkeypatch.setattr(sys, "stdin", io.StringIO(input))
        with contextlib.redirect_stderr(io.StringIO()) as said:
            code = files.main(library, *paths)
        return subprocess.CompletedProcess(words, code, "", said.getvalue())

    stand_in = SimpleNamespace(run=run, TimeoutExpired=subprocess.TimeoutExpired)
    monkeypatch.setattr(files, "subprocess", stand_in)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(2_000, 4))
    return X, (rng.random(2_000) < expit(X[:, 0] - 0.5)).astype(int)


@pytest.fixture(scope="module")
def models(rows, tmp_path_factory):
    """A saved model of every kind, by name."""
    import catboost
    import lightgbm
    import onnx
    import torch
    import xgboost
    from safetensors.torch import save_file
    from skl2onnx import to_onnx
    from sklearn.neural_network import MLPClassifier

    X, y = rows
    folder = tmp_path_factory.mktemp("models")
    lightgbm.train({"objective": "binary", "verbosity": -1, "num_threads": 1}, lightgbm.Dataset(X, y), 10).save_model(
        folder / "m.txt"
    )
    booster = xgboost.train({"objective": "binary:logistic", "nthread": 1}, xgboost.DMatrix(X, y), 10)
    for form in ("json", "ubj"):
        booster.save_model(folder / f"x.{form}")
    cat = catboost.CatBoostClassifier(iterations=10, verbose=0, thread_count=1, allow_writing_files=False).fit(X, y)
    cat.save_model(str(folder / "c.cbm"))
    cat.save_model(str(folder / "c.json"), format="json")
    net = MLPClassifier((8,), max_iter=30, tol=0.1, random_state=0).fit(X, y)
    onnx.save(to_onnx(net, X[:1].astype(np.float32), options={"zipmap": False}), folder / "n.onnx")
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    torch.save(module.state_dict(), folder / "t.pt")
    torch.save({"epoch": 3, "state_dict": module.state_dict()}, folder / "checkpoint.pt")
    save_file(module.state_dict(), folder / "t.safetensors", {"made": "here"})
    pl.DataFrame(X, schema=[f"f{i}" for i in range(4)]).write_parquet(folder / "rows.parquet")
    MAP.save(folder / "map.json")
    return folder


KINDS = {
    "m.txt": "lightgbm",
    "x.json": "xgboost",
    "x.ubj": "xgboost",
    "c.cbm": "catboost",
    "c.json": "catboost-json",
    "n.onnx": "onnx",
    "t.pt": "torch",
    "t.safetensors": "safetensors",
}
RUN = [name for name, kind in KINDS.items() if kind not in ("torch", "safetensors")]


@pytest.mark.parametrize("name", KINDS)
def test_kinds_are_told_apart(name, models):
    assert family(models / name) == KINDS[name]


@pytest.mark.parametrize("name", RUN)
def test_fold_and_verify(name, models, tmp_path, request):
    if name != "x.json":  # which is folded in a process of its own
        request.getfixturevalue("without_processes")
    target = tmp_path / name
    before = (models / name).read_bytes()
    result = CliRunner().invoke(app, ["fold", str(models / "map.json"), str(models / name), "-o", str(target)])
    assert result.exit_code == 0, result.output
    assert (models / name).read_bytes() == before
    request.getfixturevalue("without_processes")
    words = [
        "verify",
        str(models / "map.json"),
        str(models / name),
        str(target),
        "--data",
        str(models / "rows.parquet"),
    ]
    if name == "m.txt":
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, result.output
        assert "2,000 rows: the same order" in result.output
    found = json.loads(CliRunner().invoke(app, [*words, "--format", "json"]).output)
    assert found["score_difference"] <= {"xgboost": 1e-5, "onnx": 1e-4}.get(KINDS[name], 1e-12)
    assert found["prediction_difference"] <= 1e-6
    assert all(time > 0 for time in (*found["one_row"], *found["many_rows"]))
    # The model is not the map of itself.
    result = CliRunner().invoke(app, [*words[:3], str(models / name), *words[4:]])
    assert result.exit_code == 1
    assert "the same order; this is NOT the map after the model" in result.output


@pytest.mark.usefixtures("without_processes")
def test_verify_scores_with_one_thread_so_that_latencies_can_be_compared(models, monkeypatch):
    import catboost
    import lightgbm
    import onnxruntime
    import xgboost

    threads = {}

    def spy(owner, method, count):
        original = getattr(owner, method)

        def call(self, *arguments, **options):
            threads.setdefault(owner.__module__.partition(".")[0], set()).add(count(self, arguments, options))
            return original(self, *arguments, **options)

        monkeypatch.setattr(owner, method, call)

    def of_xgboost(booster, *_):
        return int(json.loads(booster.save_config())["learner"]["generic_param"]["nthread"])

    spy(lightgbm.Booster, "predict", lambda *call: call[2].get("num_threads"))
    spy(xgboost.Booster, "inplace_predict", of_xgboost)
    spy(catboost.CatBoost, "predict", lambda *call: call[2].get("thread_count"))
    spy(onnxruntime.InferenceSession, "__init__", lambda *call: call[1][1].intra_op_num_threads)
    for name in ("m.txt", "x.ubj", "c.cbm", "n.onnx"):
        verify_files(MAP, models / name, models / name, models / "rows.parquet")
    assert threads == {library: {1} for library in ("lightgbm", "xgboost", "catboost", "onnxruntime")}


@pytest.mark.parametrize("name", ["t.pt", "checkpoint.pt", "t.safetensors"])
def test_weights(name, models, tmp_path):
    import torch
    from safetensors import safe_open

    fold_file(MAP, models / name, tmp_path / name)
    if name.endswith("safetensors"):
        with safe_open(tmp_path / name, "pt") as file:
            state = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
            assert file.metadata() == {"made": "here"}
    else:
        state = torch.load(tmp_path / name, weights_only=True)
    if name == "checkpoint.pt":
        assert state["epoch"] == 3
        state = state["state_dict"]
    old = torch.load(models / "t.pt", weights_only=True)
    assert (state["0.weight"] == old["0.weight"]).all()
    assert (state["2.weight"] - 0.8 * old["2.weight"]).abs().max() < 1e-7
    assert (state["2.bias"] - (0.8 * old["2.bias"] - 0.3)).abs().max() < 1e-7
    with pytest.raises(UncurseError, match="holds weights and no graph"):
        verify_files(MAP, models / name, tmp_path / name, models / "rows.parquet")
    with pytest.raises(UncurseError, match=r"layer='0' is no layer of one output with a bias; there are: 2"):
        fold_file(MAP, models / name, tmp_path / "no", layer="0")
    assert not (tmp_path / "no").exists()


def test_verify_sees_another_order_and_another_model(models, rows):
    X = rows[0]
    found = verify(MAP, lambda x: x[:, 0], lambda x: -x[:, 0], X)
    assert found.reversed_pairs > 1_900
    assert not found.same_order
    found = verify(MAP, lambda x: x[:, 0], lambda x: 0.8 * x[:, 0] - 0.2, X)
    assert found.same_order
    assert found.score_difference == pytest.approx(0.1)
    with pytest.raises(UncurseError, match=r"scores of shape \(2000, 1\)"):
        verify(MAP, lambda x: x[:, :1], lambda x: x[:, :1], X)
    with pytest.raises(UncurseError, match=r"is lightgbm and .* is onnx"):
        verify_files(MAP, models / "m.txt", models / "n.onnx", models / "rows.parquet")


@pytest.mark.usefixtures("without_processes")
def test_a_curve_is_appended_to_an_onnx_model_and_refused_elsewhere(models, tmp_path):
    x = np.linspace(-4, 4, 64)
    curve = Curve(x.tolist(), (0.8 * x + 0.1 * np.sin(x)).tolist(), 0.8, 0.8)
    fold_file(curve, models / "n.onnx", tmp_path / "n.onnx")
    found = verify_files(curve, models / "n.onnx", tmp_path / "n.onnx", models / "rows.parquet")
    assert found.same_order
    assert found.prediction_difference < 1e-6
    for name in KINDS:
        if name != "n.onnx":
            with pytest.raises(UncurseError, match=r"this map is not a straight line.*uncurse export"):
                fold_file(curve, models / name, tmp_path / "no")
            assert not (tmp_path / "no").exists()
    curve.save(tmp_path / "curve.json")
    words = ["fold", str(tmp_path / "curve.json"), str(models / "m.txt"), "-o", str(tmp_path / "no")]
    error = str(CliRunner().invoke(app, words).exception)
    assert "`uncurse fit --straight`" in error


# ---------------------------------------------------------------------------- hostile


class Evil:
    """Writes a file when a pickle of it is read."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


@pytest.mark.parametrize("name", ["m.pkl", "m.joblib", "m.onnx", "m.txt", "m.pt", "m.safetensors"])
def test_a_pickle_is_never_read(name, tmp_path):
    marker = tmp_path / "was-here"
    (tmp_path / name).write_bytes(pickle.dumps(Evil(marker)))
    with pytest.raises(UncurseError, match="is a pickle"):
        fold_file(MAP, tmp_path / name, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert not marker.exists()
    pickle.loads((tmp_path / name).read_bytes()).close()
    assert marker.exists()  # so it would have been seen


def test_a_torch_file_runs_nothing(tmp_path):
    import torch

    marker = tmp_path / "was-here"
    torch.save({"weight": Evil(marker)}, tmp_path / "evil.pt")
    with pytest.raises(UncurseError, match="is no file of weights alone"):
        fold_file(MAP, tmp_path / "evil.pt", tmp_path / "out")
    assert not marker.exists()
    torch.save(torch.nn.Linear(2, 1), tmp_path / "module.pt")  # a whole module is a pickle too
    with pytest.raises(UncurseError, match=r"save model.state_dict"):
        fold_file(MAP, tmp_path / "module.pt", tmp_path / "out")
    with zipfile.ZipFile(tmp_path / "bomb.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"\0" * 10_000_000)
    with pytest.raises(UncurseError, match="is packed"):
        fold_file(MAP, tmp_path / "bomb.pt", tmp_path / "out")


def test_external_data_is_not_followed(models, tmp_path):
    import onnx

    model = onnx.load(models / "n.onnx")
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="/etc/passwd")
    (tmp_path / "e.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(UncurseError, match="lie in other files"):
        fold_file(MAP, tmp_path / "e.onnx", tmp_path / "out")


def test_cut_and_flipped_files_give_our_error_or_a_model(models, tmp_path):
    """In a process of their own: a crash of a library would be seen."""
    script = """
import io, os, pathlib, signal, subprocess, sys, warnings
sys.modules |= dict.fromkeys(("pandas", "sklearn"))  # as in a process of the library's own
import catboost, numpy as np, xgboost
from uncurse import Affine, UncurseError
from uncurse.serving import fold_file
from uncurse.serving.fold import files
warnings.simplefilter("ignore")
folder, target = map(pathlib.Path, sys.argv[1:3])

def forked(words, *, input, timeout, **options):
    # What the library runs, in a copy of this process: another interpreter takes a second to start.
    reading, writing = os.pipe()
    if not (child := os.fork()):
        signal.alarm(timeout)
        os.dup2(writing, 2)
        sys.stdin, sys.stderr = io.StringIO(input), open(2, "w", closefd=False)
        code = files.main(*words[words.index(files.__name__) + 1 :])
        sys.stderr.flush()
        os._exit(code)
    os.close(writing)
    with open(reading, errors="replace") as pipe:
        said = pipe.read()
    return subprocess.CompletedProcess(words, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), "", said)

files.subprocess.run = forked
for name in sys.argv[3:]:
    print(name, file=sys.stderr, flush=True)  # so a crash is said to be of this file
    data = (folder / name).read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    turns = 12 if name.startswith(("c.", "x.")) else 60  # CatBoost and XGBoost read in a process of their own
    for turn in range(turns):
        broken = bytearray(data)
        if turn % 3 == 0:
            broken = broken[: rng.integers(0, len(data))]
        elif turn % 3 == 1:
            for place in rng.integers(0, len(data), 1 + turn % 5):
                broken[place] = rng.integers(0, 256)
        else:
            start = rng.integers(0, len(data) - 8)
            broken[start : start + 8] = b"\\xff" * 8
        path = target / name
        path.write_bytes(broken)
        out = target / "out"
        try:
            fold_file(Affine(0.8, -0.3), path, out)
            out.unlink()
        except UncurseError:
            refused += 1
            assert not out.exists()
    assert refused >= -(-turns // 3), refused  # every cut at least
"""
    # Processes are copied before there are threads of other libraries.
    names = sorted([*KINDS, "checkpoint.pt"], key=lambda name: not name.startswith(("c.", "x.")))
    words = [sys.executable, "-c", script, str(models), str(tmp_path), *names]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2_000:]
    assert set(names) <= set(done.stderr.split())


def damaged_trees():
    yield "left_child=", "left_child=7777 "
    yield "leaf_value=", "leaf_value=nan "
    yield "split_feature=", "split_feature=99 "
    yield "num_leaves=", "num_leaves=9"
    yield "num_leaves=", "num_leaves=-"


@pytest.mark.parametrize(("old", "new"), list(damaged_trees()))
def test_damaged_trees_of_lightgbm(old, new, models, tmp_path):
    text = (models / "m.txt").read_text()
    head, rest = text.split("\nTree=1\n", 1)
    tree, tail = rest.split("\nTree=2\n", 1)
    broken = "Tree=1\n" + tree.replace(old, new, 1) + "\n"
    sizes = text.split("tree_sizes=")[1].split("\n")[0].split()
    sizes[1] = str(len(broken))
    head = head.replace(f"tree_sizes={text.split('tree_sizes=')[1].splitlines()[0]}", f"tree_sizes={' '.join(sizes)}")
    (tmp_path / "m.txt").write_text(f"{head}\n{broken}Tree=2\n{tail}")
    with pytest.raises(UncurseError, match="this LightGBM model"):
        fold_file(MAP, tmp_path / "m.txt", tmp_path / "out")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda tree: tree["left_children"].__setitem__(0, 10**9), "damaged"),
        (lambda tree: tree["left_children"].__setitem__(0, 0), "damaged"),
        (lambda tree: tree["split_indices"].__setitem__(0, 50), "damaged"),
        (lambda tree: tree["left_children"].__setitem__(0, tree["right_children"][0]), "damaged"),
        (lambda tree: tree["left_children"].__setitem__(0, tree["left_children"][1]), "damaged"),
        (lambda tree: tree["split_indices"].__setitem__(0, 2**30), "damaged"),
        (lambda tree: tree["parents"].__setitem__(1, 2), "damaged"),
        (lambda tree: tree["split_conditions"].pop(), "no whole xgboost model"),
        (lambda tree: tree.pop("left_children"), "no whole xgboost model"),
        (lambda tree: tree["tree_param"].__setitem__("num_nodes", "-3"), "no whole xgboost model"),
        (lambda tree: tree.__setitem__("split_conditions", [[1]]), "no whole xgboost model"),
    ],
)
def test_damaged_trees_of_xgboost(change, reason, models, tmp_path, capsys):
    document = json.loads((models / "x.json").read_text())
    change(document["learner"]["gradient_booster"]["model"]["trees"][1])
    (tmp_path / "x.json").write_text(json.dumps(document))
    assert files.main("xgboost", str(tmp_path / "x.json")) == 2
    assert reason in capsys.readouterr().err


def test_files_on_which_xgboost_crashes_are_refused(models, tmp_path):
    document = json.loads((models / "x.json").read_text())
    tree = document["learner"]["gradient_booster"]["model"]["trees"][1]
    tree.update(categories_nodes=[0], categories_segments=[10**6], categories_sizes=[10**6])
    (tmp_path / "x.json").write_text(json.dumps(document))
    (tmp_path / "x.ubj").write_bytes(b"{i\x01a[$d#L" + (2**62).to_bytes(8, "big"))
    with pytest.raises(UncurseError, match="save it again"):
        fold_file(MAP, tmp_path / "x.json", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(UncurseError, match="save it again"):
        verify_files(MAP, tmp_path / "x.ubj", tmp_path / "x.ubj", models / "rows.parquet")


@pytest.mark.parametrize(
    ("data", "reason"),
    [(b"", "is no model that is known"), (b"{" * 200_000, "save it again"), (b"hello", "is no model that is known")],
)
def test_other_files(data, reason, tmp_path):
    (tmp_path / "m.bin").write_bytes(data)
    with pytest.raises(UncurseError, match=reason):
        fold_file(MAP, tmp_path / "m.bin", tmp_path / "out")
    with pytest.raises(UncurseError, match="cannot read"):
        fold_file(MAP, tmp_path / "none", tmp_path / "out")


def test_options_that_do_not_fit(models, tmp_path):
    with pytest.raises(UncurseError, match="layer='a' is for torch weights"):
        fold_file(MAP, models / "m.txt", tmp_path / "out", layer="a")
    with pytest.raises(UncurseError, match="output='a' is for an ONNX model"):
        fold_file(MAP, models / "m.txt", tmp_path / "out", output="a")
    with pytest.raises(UncurseError, match="output='a' is no output of this model; there are: label, probabilities"):
        fold_file(MAP, models / "n.onnx", tmp_path / "out", output="a")
    result = CliRunner().invoke(
        app, ["fold", str(models / "map.json"), str(models / "m.txt"), "-o", str(models / "m.txt")]
    )
    assert isinstance(result.exception, UncurseError)
    assert "is an input of this command" in str(result.exception)
    pl.DataFrame({"a": ["x"], "b": [0.0], "c": [0.0], "d": [0.0]}).write_parquet(tmp_path / "text.parquet")
    with pytest.raises(UncurseError, match=r"column 'a' of .* holds String"):
        verify_files(MAP, models / "m.txt", models / "m.txt", tmp_path / "text.parquet")


def test_a_folder_that_nobody_trusts(models, tmp_path):
    """Reading a model imports nothing that lies about."""
    (tmp_path / "catboost.py").write_text("raise SystemExit('imported')")
    words = ["fold", str(models / "map.json"), str(models / "c.cbm"), "-o", "out.cbm"]
    code = f"import sys; sys.argv[1:] = {words!r}; from uncurse.cli import main; main()"
    done = subprocess.run([sys.executable, "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out.cbm").exists()


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("objective=binary sigmoid:1", "objective=binary sigmoid:0", "must be above 0"),
        ("objective=binary sigmoid:1", "objective=binary sigmoid:", "must be above 0"),
        ("objective=binary sigmoid:1", "objective=binary sigmoid:x", "no finite number"),
        ("feature_names=", "feature_names=a\x0bmax_feature_idx=999999\x0b", "control characters"),
        ("\n", "\r\n", "control characters|no whole"),
        ("tree_sizes=", "sizes=", "has no tree_sizes"),
    ],
)
def test_other_texts_of_lightgbm(old, new, reason, models, tmp_path):
    (tmp_path / "m.txt").write_bytes((models / "m.txt").read_bytes().replace(old.encode(), new.encode()))
    with pytest.raises(UncurseError, match=reason):
        fold_file(MAP, tmp_path / "m.txt", tmp_path / "out")


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["learner"]["learner_model_param"].__setitem__("num_class", "x"),
        lambda d: d["learner"]["learner_model_param"].__setitem__("num_class", None),
        lambda d: d["learner"]["learner_model_param"].__setitem__("num_feature", float("inf")),
        lambda d: d["learner"]["learner_model_param"].__setitem__("base_score", "[1.5E0]"),
        lambda d: d["learner"]["gradient_booster"]["model"].__setitem__("tree_info", [10**6] * 10),
        lambda d: d["learner"]["gradient_booster"]["model"]["trees"][0].__setitem__("parents", [10**6] * 3),
        lambda d: d["learner"]["gradient_booster"]["model"]["trees"][0]["left_children"].__setitem__(0, 10**400),
    ],
)
def test_other_documents_of_xgboost(change, models, tmp_path, capsys):
    document = json.loads((models / "x.json").read_text())
    change(document)
    (tmp_path / "x.json").write_text(json.dumps(document))
    assert files.main("xgboost", str(tmp_path / "x.json")) == 2
    assert "save it again" in capsys.readouterr().err


def test_other_states(tmp_path):
    import torch

    layer = {"weight": torch.ones(1, 3), "bias": torch.ones(1)}
    for content in ({0: torch.ones(1)}, {"a": 1}, [torch.ones(1)], {**layer, 3: torch.ones(1)}):
        torch.save(content, tmp_path / "s.pt")
        with pytest.raises(UncurseError):
            fold_file(MAP, tmp_path / "s.pt", tmp_path / "out")
    huge = {**layer, "wide": torch.zeros(1).expand(10**12)}
    torch.save(huge, tmp_path / "s.pt")
    fold_file(MAP, tmp_path / "s.pt", tmp_path / "out", layer="")
    assert (tmp_path / "out").stat().st_size < 10_000
    own = dict(layer)
    own["model"] = own  # a file may hold itself
    torch.save(own, tmp_path / "s.pt")
    fold_file(MAP, tmp_path / "s.pt", tmp_path / "out")
    torch.save({**layer, "_extra_state": None}, tmp_path / "s.pt")
    fold_file(MAP, tmp_path / "s.pt", tmp_path / "out")


@pytest.mark.usefixtures("without_processes")
def test_columns_that_are_not_there(models, rows, tmp_path):
    with pytest.raises(UncurseError, match=r"has no column 'typo'; there are: f0, f1"):
        verify_files(MAP, models / "m.txt", models / "m.txt", models / "rows.parquet", features=["f0", "typo"])
    for name in ("m.txt", "x.json", "c.cbm", "n.onnx"):
        with pytest.raises(UncurseError, match=r"cannot score 2 columns|does not"):
            verify_files(MAP, models / name, models / name, models / "rows.parquet", features=["f0", "f1"])
    scores = tmp_path / "scores.parquet"
    pl.DataFrame({"request": [1, 2], "score": [0.1, 0.2]}).write_parquet(scores)
    with pytest.raises(
        UncurseError, match=r"has no column 'Column_0', which the model names, .*; pass rows with the features"
    ):
        verify_files(MAP, models / "m.txt", models / "m.txt", scores)
    found = verify(MAP, lambda x: x[:, 0], lambda x: np.zeros(len(x)), rows[0])
    assert not found.same_order
    with pytest.raises(UncurseError, match="not finite"):
        verify(MAP, lambda x: x[:, 0], lambda x: x[:, 0] * np.nan, rows[0])


def test_verify_sees_whether_functions_return_probabilities(rows):
    X, line = rows[0], Affine(0.8, -0.3, scale="probability")

    def before(x):
        return expit(x[:, 0])

    def after(x):
        return expit(0.8 * x[:, 0] - 0.3)

    columns = [lambda x, one=one: np.column_stack([1 - one(x), one(x)]) for one in (before, after)]
    for pair in ((before, after), columns):
        found = verify(line, *pair, X)
        assert found.agrees
        assert found.prediction_difference == verify(line, *pair, X, space="probability").prediction_difference < 1e-12
    assert verify(line, lambda x: x[:, 0], lambda x: 0.8 * x[:, 0] - 0.3, X).agrees
    assert verify(Affine(0.8, -0.3), *columns, X).agrees
    assert not verify(line, before, after, X, space="logit").agrees
    with pytest.raises(UncurseError, match="space='odds'"):
        verify(line, before, after, X, space="odds")
