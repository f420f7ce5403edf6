"""Maps in ONNX models: into the numbers of a plain layer, else before the sigmoid; run by ONNX Runtime."""

import warnings

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from scipy.special import expit, logit

from uncurse import Affine, Curve, Segmented, Steps, UncurseError, fold

MAP = Affine(0.8, -0.3)
X = np.random.default_rng(0).normal(size=(500, 4)).astype(np.float32)


def curve():
    x = np.linspace(-5, 5, 60)
    return Curve(x.tolist(), (0.8 * x - 0.2 + 0.1 * np.sin(x)).tolist(), 0.8, 0.8)


def run(model, x=X, output=-1):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    out = session.run(None, {session.get_inputs()[0].name: x})[output]
    if isinstance(out, list):
        out = np.array([list(row.values()) for row in out])
    return np.asarray(out[:, -1] if np.ndim(out) == 2 else out, np.float64)


def graph(nodes, tensors, outputs=("p",), kind=TensorProto.FLOAT, opset=17, ir=9, axes=("n", "k")):
    given = [helper.make_tensor_value_info("x", kind, ["n", 4])]
    if ir < 4:
        given += [helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in tensors]
    made = [helper.make_tensor_value_info(name, kind, axes) for name in outputs]
    model = helper.make_model(
        helper.make_graph(nodes, "g", given, made, tensors), opset_imports=[helper.make_opsetid("", opset)]
    )
    model.ir_version = ir
    return model


def layer(dtype=np.float32):
    rng = np.random.default_rng(1)
    return [
        numpy_helper.from_array(rng.normal(size=(4, 1)).astype(dtype), "W"),
        numpy_helper.from_array(np.array([0.3], dtype), "b"),
    ]


def gemm(end="p", **attributes):
    return helper.make_node("Gemm", ["x", "W", "b"], [end], **attributes)


SIGMOID = helper.make_node("Sigmoid", ["l"], ["p"])
SHAPES = {
    "gemm": lambda: graph([gemm("l"), SIGMOID], layer()),
    "gemm with alpha and beta": lambda: graph([gemm("l", alpha=0.5, beta=2.0), SIGMOID], layer()),
    "matmul and add": lambda: graph(
        [helper.make_node("MatMul", ["x", "W"], ["m"]), helper.make_node("Add", ["b", "m"], ["l"]), SIGMOID], layer()
    ),
    "squeezed": lambda: graph([gemm("g"), helper.make_node("Flatten", ["g"], ["l"], axis=1), SIGMOID], layer()),
    "old": lambda: graph([gemm("l"), SIGMOID], layer(), opset=9, ir=3),
    "double": lambda: graph([gemm("l"), SIGMOID], layer(np.float64), kind=TensorProto.DOUBLE),
}


def model_and_rows(name):
    x = X.astype(np.float64) if name == "double" else X
    return SHAPES[name](), x[:1] if name == "squeezed" else x


@pytest.mark.parametrize("name", SHAPES)
def test_a_layer_takes_the_line(name):
    model, x = model_and_rows(name)
    folded = fold(MAP, model)
    onnx.checker.check_model(folded)
    assert [node.op_type for node in folded.graph.node] == [node.op_type for node in model.graph.node]
    assert np.abs(run(folded, x) - MAP.at_logits(logit(run(model, x)))).max() < 1e-6
    assert model == SHAPES[name]()


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("shape", [curve(), Steps((-1.0, 1.0), (-2.0, 0.0, 1.0), 1e-6, 0.0)], ids=["curve", "steps"])
def test_a_curve_goes_before_the_sigmoid(name, shape):
    model, x = model_and_rows(name)
    folded = fold(shape, model)
    onnx.checker.check_model(folded)
    l = logit(run(model, x))
    clear = np.abs(l[:, None] - np.array([-1.0, 1.0])).min(axis=1) > 1e-5  # a step apart from its edges
    assert np.abs(run(folded, x) - shape.at_logits(l))[clear].max() < 1e-6


def test_where_there_is_no_plain_layer_a_line_is_put_before_the_sigmoid():
    two = [gemm("a"), helper.make_node("Tanh", ["a"], ["t"]), helper.make_node("Add", ["a", "t"], ["l"]), SIGMOID]
    shared = [
        gemm("a"),
        helper.make_node("MatMul", ["x", "W"], ["c"]),
        helper.make_node("Add", ["a", "c"], ["l"]),
        SIGMOID,
    ]
    tied = [helper.make_node("ReduceSum", ["W"], ["w"]), gemm("a"), helper.make_node("Add", ["a", "w"], ["l"]), SIGMOID]
    for model in (graph(two, layer()), graph(shared, layer()), graph(tied, layer())):
        folded = fold(MAP, model)
        onnx.checker.check_model(folded)
        kinds = [node.op_type for node in folded.graph.node]
        assert kinds.count("Mul") == 1
        assert np.abs(run(folded) - MAP.at_logits(logit(run(model)))).max() < 1e-6


def test_a_model_that_returns_its_logit_goes_on_doing_so():
    model = graph([gemm("p")], layer())
    for shape in (MAP, curve()):
        folded = fold(shape, model)
        assert np.abs(run(folded) - shape.transform(run(model))).max() < 2e-6
    with pytest.raises(UncurseError, match="returns its sum"):
        fold(Affine(0.8, -0.3, scale="probability"), model)
    with pytest.raises(UncurseError, match="returns its sum"):
        fold(Curve((0.0,), (0.0,), 1.0, 1.0, scale="probability"), model)
    values = Affine(0.8, -0.3, "identity", "value")
    assert np.abs(run(fold(values, model)) - values(run(model))).max() < 2e-6


def test_a_map_of_probabilities_goes_behind_the_sigmoid():
    model = SHAPES["gemm"]()
    straight = Affine(0.8, 0.01, "identity", "probability")
    assert np.abs(run(fold(straight, model)) - straight(run(model))).max() < 1e-6
    by_logit = Affine(0.8, -0.3, scale="probability")
    assert np.abs(run(fold(by_logit, model)) - by_logit(run(model))).max() < 1e-6


def test_several_outputs():
    model = graph([gemm("l"), SIGMOID], layer(), outputs=("l", "p"))
    with pytest.raises(UncurseError, match=r"the outputs l, p; say which is the score"):
        fold(MAP, model)
    folded = fold(MAP, model, output="p")
    assert np.abs(run(folded) - MAP.at_logits(logit(run(model)))).max() < 1e-6
    assert (run(folded, output=0) == run(model, output=0)).all()  # what was not named stays
    with pytest.raises(UncurseError, match="output='q' is no output"):
        fold(MAP, model, output="q")


def ends(kind):
    one = [gemm("a"), helper.make_node("Sigmoid", ["a"], ["s"])]
    return {
        "softmax": [
            gemm("a"),
            helper.make_node("Concat", ["a", "a"], ["c"], axis=1),
            helper.make_node("Softmax", ["c"], ["p"]),
        ],
        "twice": [*one, helper.make_node("Add", ["s", "s"], ["p"])],
        "mean": [*one, helper.make_node("Mean", ["s", "s"], ["p"])],
        "calibrated": [*one, helper.make_node("Mul", ["s", "two"], ["p"])],
    }[kind]


@pytest.mark.parametrize(
    ("kind", "reason"), [("softmax", "Softmax"), ("mean", "Mean"), ("calibrated", "Mul"), ("twice", "Add")]
)
@pytest.mark.parametrize("shape", [MAP, curve()], ids=["line", "curve"])
def test_what_is_no_one_sum_is_refused(kind, reason, shape):
    two = numpy_helper.from_array(np.array([2.0], np.float32), "two")
    with pytest.raises(UncurseError, match=f"{reason}.*uncurse export"):
        fold(shape, graph(ends(kind), [*layer(), two]))


def test_half_precision_and_segments_are_refused():
    half = graph([gemm("l"), SIGMOID], layer(np.float16), kind=TensorProto.FLOAT16)
    with pytest.raises(UncurseError, match="FLOAT16, too coarse"):
        fold(MAP, half)
    with pytest.raises(UncurseError, match="for each segment"):
        fold(Segmented(MAP, {"a": MAP}), SHAPES["gemm"]())


def sklearn_models():
    from sklearn.ensemble import GradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    yield LogisticRegression()
    yield make_pipeline(StandardScaler(), LogisticRegression())
    yield GradientBoostingClassifier(n_estimators=5)
    yield MLPClassifier((8,), max_iter=20, tol=0.1, random_state=0)


@pytest.mark.parametrize("model", list(sklearn_models()), ids=lambda m: type(m).__name__)
def test_classifiers_of_scikit_learn(model):
    from skl2onnx import to_onnx

    y = (np.random.default_rng(2).random(len(X)) < expit(X[:, 0])).astype(int)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y)
    l = logit(model.predict_proba(X)[:, 1].astype(np.float64))
    for zipmap in (True, False):
        made = to_onnx(model, X[:1], options={id(model): {"zipmap": zipmap}})
        assert np.abs(run(fold(MAP, made)) - MAP.at_logits(l)).max() < 1e-6
        if type(model).__name__ == "MLPClassifier":
            assert np.abs(run(fold(curve(), made)) - curve().at_logits(l)).max() < 1e-6
        else:
            with pytest.raises(UncurseError, match="is not a straight line"):
                fold(curve(), made)


def test_classifiers_that_are_no_sum():
    from skl2onnx import to_onnx
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression

    y = np.arange(len(X)) % 3
    for model, labels in ((RandomForestClassifier(3), y % 2), (LogisticRegression(), y)):
        made = to_onnx(model.fit(X, labels), X[:1], options={"zipmap": False})
        with pytest.raises(UncurseError, match="is no sum of two classes"):
            fold(MAP, made)


def test_what_torch_exports(tmp_path):
    import torch
    from torch import nn

    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1), nn.Sigmoid(), nn.Flatten(0)).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        batch = torch.export.Dim("batch")
        program = torch.onnx.export(net, (torch.from_numpy(X[:4]),), dynamic_shapes=({0: batch},), verbose=False)
    model = program.model_proto
    with torch.no_grad():
        l = logit(net(torch.from_numpy(X)).double().numpy())
    for shape in (MAP, curve()):
        assert np.abs(run(fold(shape, model)) - shape.at_logits(l)).max() < 1e-6
    assert len(fold(MAP, model).graph.node) == len(model.graph.node)


# ---------------------------------------------------------------------------- what hides the score


def tail(*nodes, tensors=(), **options):
    return graph([gemm("l"), helper.make_node("Sigmoid", ["l"], ["s"]), *nodes], [*layer(), *tensors], **options)


ZERO = numpy_helper.from_array(np.array(0, np.int64), "zero")
LOW, HIGH = (numpy_helper.from_array(np.array(v, np.float32), n) for n, v in (("low", 1e-6), ("high", 1 - 1e-6)))


def test_a_column_picked_after_the_sigmoid_is_still_a_probability():
    model = tail(helper.make_node("Gather", ["s", "zero"], ["p"], axis=1), tensors=[ZERO], axes=["n"])
    for shape in (MAP, curve()):
        assert np.abs(run(fold(shape, model)) - shape.at_logits(logit(run(model)))).max() < 1e-6


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (tail(helper.make_node("Clip", ["s", "low", "high"], ["p"]), tensors=[LOW, HIGH]), "ends in 'Clip'"),
        (
            graph(
                [gemm("l"), helper.make_node("Exp", ["l"], ["e"]), helper.make_node("Reciprocal", ["e"], ["p"])],
                layer(),
            ),
            "ends in 'Reciprocal'",
        ),
        (tail(helper.make_node("Sqrt", ["s"], ["p"])), "ends in 'Sqrt'"),
    ],
    ids=["clip", "by hand", "sqrt"],
)
@pytest.mark.parametrize("shape", [MAP, curve()], ids=["line", "curve"])
def test_an_end_that_is_not_known_is_refused(model, reason, shape):
    with pytest.raises(UncurseError, match=reason):
        fold(shape, model)


def test_several_numbers_a_row_are_refused():
    wide = [
        numpy_helper.from_array(np.ones((4, 3), np.float32), "W"),
        numpy_helper.from_array(np.ones(3, np.float32), "b"),
    ]
    for nodes in ([gemm("p")], [gemm("l"), SIGMOID]):
        with pytest.raises(UncurseError, match="3 numbers a row"):
            fold(MAP, graph(nodes, wide))


def test_outputs_made_of_the_score_would_change():
    model = tail(
        helper.make_node("Identity", ["s"], ["p"]), helper.make_node("Mul", ["s", "s"], ["both"]), outputs=("p", "both")
    )
    with pytest.raises(UncurseError, match="the output 'both'"):
        fold(MAP, model, output="p")


def test_numbers_used_inside_a_branch_stay():
    branch = [
        helper.make_graph(
            [helper.make_node("ReduceSum", ["W"], [f"r{i}"])],
            f"b{i}",
            [],
            [helper.make_tensor_value_info(f"r{i}", TensorProto.FLOAT, [1, 1])],
        )
        for i in range(2)
    ]
    yes = numpy_helper.from_array(np.array(True), "yes")
    nodes = [
        helper.make_node("If", ["yes"], ["r"], then_branch=branch[0], else_branch=branch[1]),
        helper.make_node("Add", ["x", "r"], ["shifted"]),
        helper.make_node("Gemm", ["shifted", "W", "b"], ["l"]),
        SIGMOID,
    ]
    model = graph(nodes, [*layer(), yes])
    assert np.abs(run(fold(MAP, model)) - MAP.at_logits(logit(run(model)))).max() < 1e-6


@pytest.mark.parametrize("raw", [True, False])
def test_folding_twice(raw):
    ends = [helper.make_node("Tanh", ["a"], ["t"]), helper.make_node("Add", ["a", "t"], ["p" if raw else "l"])]
    model = graph([gemm("a"), *ends, *([] if raw else [SIGMOID])], layer())
    twice = fold(MAP, fold(MAP, model), again=True)
    onnx.checker.check_model(twice)
    l = run(model) if raw else logit(run(model))
    wanted = 0.8 * (0.8 * l - 0.3) - 0.3
    assert np.abs(run(twice) - (wanted if raw else expit(wanted))).max() < 2e-6


def test_a_sigmoid_of_the_input_itself():
    given = helper.make_tensor_value_info("l", TensorProto.FLOAT, ["n", 1])
    made = helper.make_tensor_value_info("p", TensorProto.FLOAT, ["n", 1])
    bare = helper.make_model(
        helper.make_graph([SIGMOID], "g", [given], [made]), opset_imports=[helper.make_opsetid("", 17)]
    )
    bare.ir_version = 9
    x = np.linspace(-5, 5, 50, dtype=np.float32)[:, None]
    assert np.abs(run(fold(MAP, bare), x) - expit(0.8 * x[:, 0] - 0.3)).max() < 1e-6


def trees(ids, weights, base=None):
    attributes = {
        "class_ids": ids,
        "class_nodeids": [1, 2][: len(ids)] if len(set(ids)) == 1 else [1, 1, 2, 2],
        "class_treeids": [0] * len(ids),
        "class_weights": weights,
        "classlabels_int64s": [0, 1],
        "nodes_treeids": [0, 0, 0],
        "nodes_nodeids": [0, 1, 2],
        "nodes_featureids": [0, 0, 0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_values": [0.0, 0.0, 0.0],
        "nodes_truenodeids": [1, 0, 0],
        "nodes_falsenodeids": [2, 0, 0],
        "nodes_hitrates": [1.0] * 3,
        "nodes_missing_value_tracks_true": [0] * 3,
        "post_transform": "LOGISTIC",
    }
    if base is not None:
        attributes["base_values"] = base
    node = helper.make_node("TreeEnsembleClassifier", ["x"], ["label", "p"], domain="ai.onnx.ml", **attributes)
    outputs = [
        helper.make_tensor_value_info("label", TensorProto.INT64, ["n"]),
        helper.make_tensor_value_info("p", TensorProto.FLOAT, ["n", 2]),
    ]
    made = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])], outputs)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)])
    model.ir_version = 9
    return model


@pytest.mark.parametrize(
    ("ids", "weights", "base"),
    [
        ([0, 0], [-0.4, 0.6], None),
        ([0, 0], [-0.4, 0.6], [0.2]),
        ([0, 1, 0, 1], [0.4, -0.4, -0.6, 0.6], None),
    ],
)
def test_ensembles_of_trees(ids, weights, base):
    model = trees(ids, weights, base)
    assert np.abs(run(fold(MAP, model)) - MAP.at_logits(logit(run(model)))).max() < 1e-6


def test_trees_whose_runtime_reads_them_otherwise_are_refused():
    with pytest.raises(UncurseError, match="differs from the map"):
        fold(MAP, trees([0, 0], [-0.4, 0.6], [0.2, 0.1]))  # two base values
    with pytest.raises(UncurseError):
        fold(MAP, trees([0], [-0.4]))  # a leaf without a weight


def test_trees_that_vote_are_refused():
    with pytest.raises(UncurseError, match="differs from the map"):
        fold(MAP, trees([0, 1, 0, 1], [0.4, 0.1, 0.6, 0.3]))


def test_regressors_of_scikit_learn():
    from skl2onnx import to_onnx
    from sklearn.linear_model import Ridge

    model = to_onnx(Ridge().fit(X, X[:, 0]), X[:1])
    values = Affine(0.8, -0.3, "identity", "value")
    assert np.abs(run(fold(values, model)) - values(run(model))).max() < 2e-6


# ---------------------------------------------------------------------------- both classes side by side


ONE = numpy_helper.from_array(np.array(1.0, np.float32), "one")


def pair(*nodes, tensors=(ONE,), **options):
    """A model that ends in 1 − p and p."""
    both = [
        helper.make_node("Sub", ["one", "s"], ["rest"]),
        helper.make_node("Concat", ["rest", "s"], ["both" if nodes else "p"], axis=1),
    ]
    return tail(*both, *nodes, tensors=tensors, **options)


def run_all(model):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": X})[0].astype(np.float64)


@pytest.mark.parametrize(
    "shape",
    [
        MAP,
        curve(),
        Affine(0.6, 0.05, "identity", "probability"),
        Affine(0.8, -0.3, scale="probability"),
        Steps((0.3, 0.6), (0.1, 0.4, 0.9), 1e-6, link="identity", scale="probability"),
    ],
    ids=["logits", "curve", "probabilities", "logits of probabilities", "steps"],
)
def test_both_classes_are_mapped_as_one(shape):
    model = pair()
    before, after = run_all(model), run_all(fold(shape, model))
    p = before[:, 1]
    wanted = shape.at_logits(logit(p)) if shape.scale == "logit" else shape(p)
    assert np.abs(after.sum(axis=1) - 1).max() < 1e-6
    assert np.abs(after[:, 1] - wanted).max() < 1e-6


def test_a_column_picked_from_both_classes():
    picks = {
        index: pair(
            helper.make_node("Gather", ["both", "index"], ["p"], axis=1),
            tensors=(ONE, numpy_helper.from_array(np.array(index, np.int64), "index")),
            axes=["n"],
        )
        for index in (0, 1)
    }
    assert np.abs(run_all(fold(MAP, picks[1])) - MAP.at_logits(logit(run_all(picks[1])))).max() < 1e-6
    with pytest.raises(UncurseError, match="differs from the map"):
        fold(MAP, picks[0])


def test_what_looks_like_both_classes_is_refused():
    two = numpy_helper.from_array(np.array(2.0, np.float32), "one")
    with pytest.raises(UncurseError, match="differs from the map"):
        fold(MAP, pair(tensors=(two,)))


def test_verify_reads_every_column_and_output(tmp_path):
    import polars as pl

    from uncurse.serving import verify_files

    shape = Affine(0.6, 0.05, "identity", "probability")
    pl.DataFrame(X, schema=list("abcd")).write_parquet(tmp_path / "rows.parquet")

    def verified(before, after, output=None):
        onnx.save(before, tmp_path / "a.onnx")
        onnx.save(after, tmp_path / "b.onnx")
        return verify_files(shape, tmp_path / "a.onnx", tmp_path / "b.onnx", tmp_path / "rows.parquet", output=output)

    model = pair()
    assert verified(model, fold(shape, model)).agrees
    # A fold that leaves the first column as it was.
    wrong = fold(shape, model)
    producer = next(node for node in wrong.graph.node if node.op_type == "Sub" and node.output[0] == "rest")
    producer.input[1] = next(node.output[0] for node in wrong.graph.node if node.op_type == "Sigmoid")
    found = verified(model, wrong)
    assert found.prediction_difference > 0.1
    assert not found.agrees
    # An output beside the score must not change.
    model = tail(helper.make_node("Identity", ["s"], ["p"]), outputs=("p", "l"))
    folded = fold(shape, model, output="p")
    assert verified(model, folded, "p").agrees
    folded.graph.node[0].attribute.append(helper.make_attribute("beta", 2.0))  # the Gemm
    found = verified(model, folded, "p")
    assert not found.agrees


def test_verify_reads_labels(tmp_path):
    import polars as pl

    from uncurse.serving import verify_files

    shape = Affine(0.8, -0.6)
    half = numpy_helper.from_array(np.array(0.5, np.float32), "half")
    nodes = [
        helper.make_node("Identity", ["s"], ["p"]),
        helper.make_node("Less", ["half", "s"], ["is"]),
        helper.make_node("Cast", ["is"], ["label"], to=TensorProto.INT64),
    ]
    model = tail(*nodes, tensors=[half])
    model.graph.output.insert(0, helper.make_tensor_value_info("label", TensorProto.INT64, ["n", 1]))
    pl.DataFrame(X, schema=list("abcd")).write_parquet(tmp_path / "rows.parquet")
    folded = fold(shape, model)
    for name, one in (("a", model), ("b", folded)):
        onnx.save(one, tmp_path / f"{name}.onnx")
    assert verify_files(shape, *(tmp_path / f"{name}.onnx" for name in "ab"), tmp_path / "rows.parquet").agrees
    stale = next(one for one in folded.graph.initializer if one.name == "half")
    stale.CopyFrom(numpy_helper.from_array(np.array(0.3, np.float32), "half"))
    onnx.save(folded, tmp_path / "b.onnx")
    assert not verify_files(shape, *(tmp_path / f"{name}.onnx" for name in "ab"), tmp_path / "rows.parquet").agrees
