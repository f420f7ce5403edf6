"""Saved models on the command line: folded whole or not at all, verified, and never believed."""

import json
import pickle
import re
import sys

import numpy as np
import polars as pl
import pytest
from scipy.special import expit
from typer.testing import CliRunner

from uncurse import Affine, Curve, UncurseError
from uncurse.cli import app
from uncurse.serving import fold_file, verify, verify_files
from uncurse.serving.fold import family, load_family

MAP = Affine(0.8, -0.3)


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
    save_file(module.state_dict(), folder / "t.safetensors", {"made": "here"})
    pl.DataFrame(X, schema=[f"f{i}" for i in range(4)]).write_parquet(folder / "rows.parquet")
    MAP.save(folder / "map.json")
    return folder


KINDS = {
    "m.txt": "lightgbm",
    "x.json": "xgboost",
    "x.ubj": "xgboost",
    "c.cbm": "catboost",
    "c.json": "catboost",
    "n.onnx": "onnx",
    "t.pt": "torch",
    "t.safetensors": "torch",
}
#: Models that run; weights do not, and UBJSON is another form of XGBoost's JSON.
RUN = ["m.txt", "x.json", "c.cbm", "c.json", "n.onnx"]


@pytest.mark.parametrize("name", RUN)
def test_fold_and_verify(name, models, tmp_path):
    target = tmp_path / name
    before = (models / name).read_bytes()
    result = CliRunner().invoke(app, ["fold", str(models / "map.json"), str(models / name), "-o", str(target)])
    assert result.exit_code == 0, result.output
    assert (models / name).read_bytes() == before
    words = [
        "verify",
        str(models / "map.json"),
        str(models / name),
        str(target),
        "--data",
        str(models / "rows.parquet"),
    ]
    if name == "n.onnx":
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


@pytest.mark.parametrize("name", ["t.pt", "t.safetensors"])
def test_weights(name, models, tmp_path):
    import torch
    from safetensors import safe_open

    fold_file(MAP, models / name, tmp_path / name, layer="2")
    if name.endswith("safetensors"):
        with safe_open(tmp_path / name, "pt") as file:
            state = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
            assert file.metadata()["made"] == "here"
    else:
        state = torch.load(tmp_path / name, weights_only=True)
    old = torch.load(models / "t.pt", weights_only=True)
    assert (state["0.weight"] == old["0.weight"]).all()
    assert (state["2.weight"] - 0.8 * old["2.weight"]).abs().max() < 1e-7
    assert (state["2.bias"] - (0.8 * old["2.bias"] - 0.3)).abs().max() < 1e-7
    with pytest.raises(UncurseError, match="cannot score"):
        verify_files(MAP, models / name, tmp_path / name, models / "rows.parquet")
    with pytest.raises(UncurseError, match="layer='0'"):
        fold_file(MAP, models / name, tmp_path / "no", layer="0")
    assert not (tmp_path / "no").exists()


def test_without_safetensors_the_error_names_the_extra(models, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(UncurseError, match=r"needs safetensors; pip install 'uncurse\[deep\]'"):
        fold_file(MAP, models / "t.safetensors", tmp_path / "out", layer="2")


def test_verify_sees_another_order_and_another_model(models, rows):
    X = rows[0]
    found = verify(MAP, lambda x: x[:, 0], lambda x: -x[:, 0], X)
    assert found.reversed_pairs > 1_900
    assert not found.same_order
    found = verify(MAP, lambda x: x[:, 0], lambda x: 0.8 * x[:, 0] - 0.2, X)
    assert found.same_order
    assert found.score_difference == pytest.approx(0.1)
    with pytest.raises(UncurseError, match="3 numbers a row"):
        verify(MAP, lambda x: x[:, :3], lambda x: x[:, :3], X)
    with pytest.raises(UncurseError, match="two libraries"):
        verify_files(MAP, models / "m.txt", models / "n.onnx", models / "rows.parquet")


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
    with pytest.raises(UncurseError, match="A pickle would run"):
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


@pytest.mark.parametrize("name", KINDS)
def test_cut_files_give_our_error_and_no_model(name, models, tmp_path):
    data = (models / name).read_bytes()
    for share in (0.3, 0.9):
        (tmp_path / name).write_bytes(data[: int(share * len(data))])
        with pytest.raises(UncurseError):
            fold_file(MAP, tmp_path / name, tmp_path / "out")
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", [name for name in KINDS if name != "x.ubj"])
def test_a_folded_model_says_so_and_a_second_fold_is_refused(name, models, tmp_path):
    layer = "2" if name.startswith("t.") else None
    kind = load_family(family(models / name))
    assert kind.stamp(kind.read(models / name)) is None
    first, second = tmp_path / f"1{name}", tmp_path / f"2{name}"
    fold_file(MAP, models / name, first, layer=layer)
    stamp = kind.stamp(kind.read(first))
    assert "Affine(slope=0.8, intercept=-0.3" in stamp
    with pytest.raises(UncurseError, match=r"holds a map already \(Affine\(slope=0\.8.*original model"):
        fold_file(MAP, first, second, layer=layer)
    assert not second.exists()
    fold_file(Affine(0.5, 0.25), first, second, layer=layer, again=True)
    assert kind.stamp(kind.read(second)).startswith(f"{stamp}; Affine(slope=0.5, intercept=0.25")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (r"leaf_value=\S+", "leaf_value=1Z"),
        (r"left_child=\S+", "left_child=99"),
        (r"num_leaves=\d+", "num_leaves=-3"),
        (r"left_child=\S+", "left_child=0"),
    ],  # its own child
)
def test_a_damaged_lightgbm_text_is_an_error_even_if_the_library_aborts(old, new, models, tmp_path):
    (tmp_path / "m.txt").write_text(re.sub(old, new, (models / "m.txt").read_text(), count=1))
    with pytest.raises(UncurseError, match=r"LightGBM does not read .*m\.txt"):
        fold_file(MAP, tmp_path / "m.txt", tmp_path / "out.txt")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "is no model file that is known"),
        (b"{" * 200_000, "is no model file that is known"),
        (b'{"a": 1}', "is no model file that is known"),
        (b'{"features_info": {}}', "CatBoost"),
        (b'{"learner": null, "version": [2, 0, 0]}', r"XGBoost does not read \S+ \([^\[\]/]+\); save it again"),
        (b"hello", "is no model file that is known"),
    ],
)
def test_other_files(data, reason, tmp_path):
    (tmp_path / "m.bin").write_bytes(data)
    with pytest.raises(UncurseError, match=reason):
        fold_file(MAP, tmp_path / "m.bin", tmp_path / "out")
    with pytest.raises(UncurseError, match="cannot read"):
        fold_file(MAP, tmp_path / "none", tmp_path / "out")


def test_options_that_do_not_fit(models, tmp_path):
    with pytest.raises(UncurseError, match="layer='a'"):
        fold_file(MAP, models / "c.cbm", tmp_path / "out", layer="a")
    with pytest.raises(UncurseError, match="output='a'"):
        fold_file(MAP, models / "c.cbm", tmp_path / "out", output="a")
    with pytest.raises(UncurseError, match="output='a' is no output of this model; there are: label, probabilities"):
        fold_file(MAP, models / "n.onnx", tmp_path / "out", output="a")
    result = CliRunner().invoke(
        app, ["fold", str(models / "map.json"), str(models / "m.txt"), "-o", str(models / "m.txt")]
    )
    assert isinstance(result.exception, UncurseError)
    assert "is an input of this command" in str(result.exception)
    pl.DataFrame({"a": ["x"], "b": [0.0], "c": [0.0], "d": [0.0]}).write_parquet(tmp_path / "text.parquet")
    with pytest.raises(UncurseError, match="column 'a'"):
        verify_files(MAP, models / "c.cbm", models / "c.cbm", tmp_path / "text.parquet")


def test_other_states(tmp_path):
    import torch

    layer = {"weight": torch.ones(1, 3), "bias": torch.ones(1)}
    for content in ({0: torch.ones(1)}, {"a": 1}, [torch.ones(1)], {**layer, 3: torch.ones(1)}):
        torch.save(content, tmp_path / "s.pt")
        with pytest.raises(UncurseError):
            fold_file(MAP, tmp_path / "s.pt", tmp_path / "out")
    torch.save({**layer, "_extra_state": None}, tmp_path / "s.pt")
    fold_file(MAP, tmp_path / "s.pt", tmp_path / "out", layer="")


def test_columns_that_are_not_there(models, rows, tmp_path):
    with pytest.raises(UncurseError, match="typo"):
        verify_files(MAP, models / "c.cbm", models / "c.cbm", models / "rows.parquet", features=["f0", "typo"])
    for name in ("m.txt", "x.json", "c.cbm", "n.onnx"):
        with pytest.raises(UncurseError, match=r"cannot score|2 features"):
            verify_files(MAP, models / name, models / name, models / "rows.parquet", features=["f0", "f1"])
    scores = tmp_path / "scores.parquet"
    pl.DataFrame({"request": [1, 2], "score": [0.1, 0.2]}).write_parquet(scores)
    with pytest.raises(UncurseError, match="cannot score"):
        verify_files(MAP, models / "c.cbm", models / "c.cbm", scores)
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
        assert found.prediction_difference < 1e-12
    assert verify(line, lambda x: x[:, 0], lambda x: 0.8 * x[:, 0] - 0.3, X).agrees
    assert verify(Affine(0.8, -0.3), *columns, X).agrees
    assert not verify(line, before, lambda x: 0.8 * before(x) - 0.2, X).agrees
