"""A fold into a random model of any family is the map after the model, or is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, logit

from uncurse import Affine, UncurseError, fold

pytestmark = pytest.mark.filterwarnings("ignore")
ROWS = 200


def sklearn_model(X, y, size, kind):
    from sklearn.ensemble import GradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.neural_network import MLPClassifier

    made = {
        0: LogisticRegression(C=10.0**size),
        1: GradientBoostingClassifier(n_estimators=1 + size, max_depth=2, random_state=0),
        2: MLPClassifier((size + 1,), max_iter=5, random_state=0),
    }[kind]
    return made.fit(X, y), lambda model: logit(model.predict_proba(X)[:, 1])


def lightgbm_model(X, y, size, kind):
    lightgbm = pytest.importorskip("lightgbm")
    options = {"objective": ["binary", "cross_entropy", "binary"][kind], "linear_tree": kind == 2, "num_threads": 1}
    made = lightgbm.train({**options, "verbosity": -1, "num_leaves": 2 + size}, lightgbm.Dataset(X, y), 1 + size)
    return made, lambda model: model.predict(X, raw_score=True)


def xgboost_model(X, y, size, kind):
    xgboost = pytest.importorskip("xgboost")
    options = {"booster": ["gbtree", "gblinear", "dart"][kind], "objective": "binary:logistic", "nthread": 1}
    data = xgboost.DMatrix(X, y)
    made = xgboost.train({**options, "max_depth": 1 + size, "seed": 0}, data, 1 + size)
    return made, lambda model: model.predict(data, output_margin=True)


def catboost_model(X, y, size, kind):
    catboost = pytest.importorskip("catboost")
    grow = ["SymmetricTree", "Depthwise", "Lossguide"][kind]
    made = catboost.CatBoostClassifier(
        iterations=1 + size, depth=1 + size, grow_policy=grow, verbose=0, thread_count=1, allow_writing_files=False
    ).fit(X, y)
    return made, lambda model: model.predict(X, prediction_type="RawFormulaVal")


def torch_model(X, y, size, kind):
    torch = pytest.importorskip("torch")
    nn = torch.nn

    torch.manual_seed(size)
    net = nn.Sequential(nn.Linear(X.shape[1], 1 + size), nn.ReLU(), nn.Linear(1 + size, 1))
    tail = [nn.Identity(), nn.PReLU(), nn.BatchNorm1d(1)][kind]
    if kind == 2:
        tail.running_mean.fill_(0.3)
    made = nn.Sequential(net, tail).double().eval()
    return made, lambda model: model(torch.from_numpy(X)).detach().numpy()[:, 0]


def onnx_model(X, y, size, kind):
    onnxruntime, skl2onnx = pytest.importorskip("onnxruntime"), pytest.importorskip("skl2onnx")
    inner, _ = sklearn_model(X, y, size, kind)
    made = skl2onnx.to_onnx(inner, X[:1].astype(np.float32), options={"zipmap": False})

    def score(model):
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        return logit(np.clip(session.run(None, {"X": X.astype(np.float32)})[1][:, 1].astype(float), 1e-6, 1 - 1e-6))

    return made, score


MAKERS = [sklearn_model, lightgbm_model, xgboost_model, catboost_model, torch_model, onnx_model]
#: Random models that have to be folded; others may be refused.
FOLDABLE = {maker.__name__: {0, 1, 2} for maker in MAKERS} | {"torch_model": {0}}


@pytest.mark.parametrize("maker", MAKERS, ids=lambda maker: maker.__name__)
@given(
    seed=st.integers(0, 2**16),
    width=st.integers(1, 5),
    size=st.integers(0, 3),
    kind=st.integers(0, 2),
    slope=st.floats(0.05, 3.0),
    intercept=st.floats(-4.0, 4.0),
)
def test_a_folded_model_is_the_map_after_the_model(maker, seed, width, size, kind, slope, intercept):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(ROWS, width))
    y = (rng.random(ROWS) < expit(X[:, 0])).astype(int)
    y[:2] = 0, 1
    model, score = maker(X, y, size, kind)
    line = Affine(slope, intercept)
    before = score(model)
    try:
        folded = fold(line, model)
    except UncurseError:
        assert kind not in FOLDABLE[maker.__name__]
        return
    np.testing.assert_array_equal(score(model), before)
    known = np.abs(before) < 10  # single precision tells these probabilities apart
    wanted = slope * before + intercept
    np.testing.assert_allclose(expit(score(folded))[known], expit(wanted)[known], rtol=2e-3, atol=1e-5)
