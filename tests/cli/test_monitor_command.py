"""`uncurse monitor` on real files: decisions, exit codes, late labels, states, Prometheus."""

import json
import re
import shutil

import numpy as np
import polars as pl
import pytest
from prometheus_client.parser import text_string_to_metric_families

import processes
from uncurse import Affine, Fitted, MonitorState, collect, monitor
from uncurse.methods import DataRecord, FitRecord

JSON = ("--format", "json")


def log_of(seed, rows=20_000, factor=1.0, unlabeled=0):
    """A log of served scores, of which the last rows have no label yet."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(-2, 1, rows)
    odds = np.exp(logits) * factor
    labels = (rng.random(rows) < odds / (1 + odds)).astype(float)
    frame = pl.DataFrame({"s0": logits, "click": labels, "country": np.where(np.arange(rows) % 3, "de", 'a "b"\\')})
    days = pl.datetime_range(pl.datetime(2026, 11, 1), pl.datetime(2026, 11, 5), "6h", closed="left", eager=True)
    frame = frame.with_columns(request=pl.int_range(rows) // 4, at=days.gather(np.arange(rows) % len(days)))
    return frame.with_columns(click=pl.when(pl.int_range(rows) < rows - unlabeled).then("click"))


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A folder with a map and logs."""
    folder, record = tmp_path_factory.mktemp("files"), FitRecord("vad", DataRecord(20_000, ("s0", "s1")))
    Fitted(Affine(1.0, 0.0), record).save(folder / "map.json")
    log_of(1).write_parquet(folder / "good.parquet")
    log_of(2, factor=0.7).write_parquet(folder / "bad.parquet")
    log_of(3, unlabeled=5_000).write_parquet(folder / "late.parquet")
    return folder


@pytest.fixture
def written(tmp_path, files):
    """A map and logs in the folder of the command."""
    return shutil.copytree(files, tmp_path, dirs_exist_ok=True)


def test_a_valid_map_is_kept(run, written):
    text = run("monitor", "map.json", "good.parquet", "--label", "click")
    assert text.startswith("keep: no evidence against the map: predictions are")
    assert "these rows" in text
    assert "predictions 5% to 10%" in text


def test_a_wrong_map_ends_with_exit_code_1_and_the_state_is_kept(run, written, capsys):
    run("monitor", "map.json", "good.parquet", "--label", "click", "--state", "s.json", "--day", "2026-11-01")
    arguments = ("monitor", "map.json", "bad.parquet", "--label", "click", "--state", "s.json", "--day", "2026-11-02")
    run(*arguments, code=1)
    assert list(MonitorState.load(written / "s.json").days) == ["2026-11-01", "2026-11-02"]
    message = run(*arguments, code=2)
    assert "bad.parquet was counted on 2026-11-02" in message


def test_the_table_has_a_row_since_the_error_began(run, written):
    common = ("--label", "click", "--state", "s.json", "--day")
    for day in ("01", "02", "03"):
        log_of(int(day) + 10).write_parquet(written / f"{day}.parquet")
        assert "\nsince 20" not in run("monitor", "map.json", f"{day}.parquet", *common, f"2026-11-{day}")
    run("monitor", "map.json", "bad.parquet", *common, "2026-11-04", code=1)
    span = re.match(r"alarm: since 2026-11-04 .* sequence (.*?)\)", run.stdout)[1]
    assert "to find an error of 5%" not in run.stdout  # it is found
    assert re.search(rf"^since 2026-11-04 .* {re.escape(span)} ", run.stdout, re.M)
    log_of(14, factor=0.7).write_parquet(written / "again.parquet")
    run("monitor", "map.json", "again.parquet", *common, "2026-11-05", "--format", "json", code=1)
    assert json.loads(run.stdout)["wrong_since"]["name"] == "since 2026-11-04"


def test_a_bad_day_of_a_map_that_is_kept_is_named(run, written):
    state = None
    for day in range(1, 16):
        rows = log_of(day + 10)
        evidence = collect(rows, "s0", scale="logit", label="click")
        state = monitor(Affine(1.0, 0.0), evidence, state, day=f"2026-11-{day:02}").state
    state.save(written / "s.json")
    log_of(30, factor=1.09).write_parquet(written / "log.parquet")
    common = ("monitor", "map.json", "--label", "click", "--state", "s.json", "--day")
    text = run(*common, "2026-11-16", "log.parquet")
    first, second, *_ = text.splitlines()
    assert first.startswith("keep: ")
    assert re.fullmatch(
        r"these rows alone: predictions are [\d.]+% too low \(95% confidence sequence -.* to -.*\)", second
    )
    text = run(*common, "2026-11-17", "good.parquet")
    assert text.startswith("keep: ")
    assert "alone" not in text


def test_json_holds_everything(run, written):
    found = json.loads(run("monitor", "map.json", "good.parquet", "--label", "click", "--segment", "country", *JSON))
    assert found["kind"] == "verdict"
    assert found["decision"] == "keep"
    assert [part["name"] for part in found["segments"]] == ['a "b"\\', "de"]
    assert found["since_fit"]["low"] < found["since_fit"]["error"] < found["since_fit"]["high"]


def test_rows_without_a_label_are_no_negatives(run, written, capsys):
    found = json.loads(run("monitor", "map.json", "late.parquet", "--label", "click", *JSON))
    assert found["decision"] == "keep"
    assert found["latest"]["rows"] == 15_000
    negatives = pl.read_parquet(written / "late.parquet").with_columns(pl.col("click").fill_null(0.0))
    negatives.write_parquet(written / "wrong.parquet")
    run("monitor", "map.json", "wrong.parquet", "--label", "click", code=1)


@pytest.mark.parametrize("kind", ["parquet", "csv", "date"])
def test_each_row_counts_once_when_labels_settle(run, written, kind):
    frame = pl.read_parquet(written / "good.parquet")
    name = "log.csv" if kind == "csv" else "log.parquet"
    if kind == "csv":
        frame.write_csv(written / name)
    else:
        frame = frame.with_columns(pl.col("at").cast(pl.Date)) if kind == "date" else frame
        frame.write_parquet(written / name)
    common = ("monitor", "map.json", name, "--label", "click", "--time", "at", "--state", "s.json", *JSON)
    first = json.loads(run(*common, "--settled-before", "2026-11-02", "--day", "2026-11-02"))
    second = json.loads(run(*common, "--settled-before", "2026-11-04", "--day", "2026-11-04"))
    assert (first["latest"]["rows"], second["latest"]["rows"]) == (5_000, 10_000)
    assert second["since_fit"]["rows"] == 15_000
    assert "all rows before 2026-11-04 are counted" in run(*common, "--settled-before", "2026-11-03", code=2)
    message = run("monitor", "map.json", name, "--label", "click", "--state", "s.json", code=2)
    assert "pass --time and --settled-before again" in message


def test_the_best_of_each_request_are_selected_before_labels_are_looked_at(run, written):
    frame = log_of(5, rows=8_000).sort("s0")  # the best rows have no label yet
    frame = frame.with_columns(request=pl.int_range(8_000) % 2_000)
    frame = frame.with_columns(click=pl.when(pl.int_range(8_000) < 7_000).then("click"))
    frame.write_parquet(written / "requests.parquet")
    common = ("monitor", "map.json", "requests.parquet", "--label", "click", "--request", "request", "--top-k", "1")
    assert json.loads(run(*common, *JSON))["latest"]["rows"] == 1_000


def test_evidence_is_read_like_a_log(run, written):
    run("collect", "good.parquet", "--scores", "s0", "--scale", "logit", "--label", "click", "-o", "day.json")
    log = json.loads(run("monitor", "map.json", "good.parquet", "--label", "click", *JSON))
    evidence = json.loads(run("monitor", "map.json", "day.json", *JSON))
    assert evidence["since_fit"] == log["since_fit"]
    message = run("monitor", "map.json", "day.json", "--time", "at", "--settled-before", "2026-11-02", code=2)
    assert "is evidence" in message


def test_prometheus_reads_the_metrics(run, written):
    options = "--label click --segment country --prometheus m.prom"
    run("monitor", "map.json", "bad.parquet", *options.split(), code=1)
    families = {one.name: one for one in text_string_to_metric_families((written / "m.prom").read_text())}
    decisions = {sample.labels["decision"]: sample.value for sample in families["uncurse_decision"].samples}
    assert decisions == {"keep": 0, "watch": 0, "alarm": 1}
    errors = families["uncurse_error"].samples
    assert {sample.labels.get("segment") for sample in errors} == {None, "de", 'a "b"\\'}
    (since,) = [s for s in errors if set(s.labels) == {"map", "rows"} and s.labels["rows"] == "since_fit"]
    assert since.value > 0.2
    assert since.labels["map"] == "map.json"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["good.parquet"], "--label is missing"),
        (["good.parquet", "--label", "click", "--tolerance", "lots"], "'--tolerance': 'lots'"),
        (["good.parquet", "--label", "click", "--time", "at"], "--settled-before"),
        (["good.parquet", "--label", "click", "--settled-before", "2026-11-02"], "--time"),
        (
            ["good.parquet", "--label", "click", "--time", "at", "--settled-before", "noon"],
            "--settled-before is 'noon'",
        ),
        (["good.parquet", "--label", "click", "--day", "noon"], "day is 'noon'"),
        (["good.parquet", "--label", "click", "--time", "s0", "--settled-before", "2026-11-02"], "time column 's0'"),
        (["good.parquet", "--label", "click", "--state", "state.txt"], "--state is state.txt"),
        (["good.parquet", "--label", "click", "--pool", "good.parquet"], "no column 's1'"),
        (["absent.parquet", "--label", "click"], "absent.parquet"),
    ],
)
def test_wrong_options_are_named(run, written, arguments, message):
    assert message in run("monitor", "map.json", *arguments, code=2)


@pytest.mark.parametrize(
    "command",
    [
        ("monitor", "logits.json", "p.parquet"),
        ("refresh", "logits.json", "p.parquet", "-o", "new.json"),
        ("evaluate", "p.parquet", "--map", "logits.json", "--value", "bid", "--top", "5%"),
    ],
)
def test_probabilities_in_place_of_logits_need_another_map_as_there_is_no_option_for_the_scale(command, run, written):
    log_of(4).with_columns(p=1 / (1 + (-pl.col("s0")).exp()), bid=1.0).write_parquet(written / "p.parquet")
    Affine(1.0, 0.0).save(written / "logits.json")
    Affine(1.0, 0.0, scale="probability").save(written / "probabilities.json")
    options = ("--scores", "p", "--label", "click")
    run(*command, *options, code=1 if command[0] == "monitor" else 0)
    assert "every value of p lies in [0, 1]" in run.stderr
    right = [word.replace("logits.json", "probabilities.json") for word in command]
    run(*right, *options)
    assert "[0, 1]" not in run.stderr


def test_a_state_of_another_map_is_refused(run, written):
    run("monitor", "map.json", "good.parquet", "--label", "click", "--state", "s.json")
    Affine(0.9, 0.1).save(written / "map.json")
    message = run(
        "monitor", "map.json", "good.parquet", "--scores", "s0", "--label", "click", "--state", "s.json", code=2
    )
    assert "--state s.json belongs to another map than map.json" in message


def test_two_commands_at_once_lose_no_day(written):
    common = ["monitor", "map.json", "good.parquet", "--label", "click", "--state", "s.json"]
    running = []
    for day, name in enumerate(("good.parquet", "late.parquet"), 1):
        running.append(processes.start([*common[:2], name, *common[3:], "--day", f"2026-11-0{day}"], written))
    for process in running:
        process.join()
        assert process.exitcode == 0
    assert len(MonitorState.load(written / "s.json").days) == 2


def test_later_days_take_tolerance_labels_and_selection_from_the_state(run, written):
    for day in (1, 2):
        log_of(day, factor=0.97).with_columns(shown=pl.lit(1)).write_parquet(written / f"{day}.parquet")
    state = ("--state", "s.json", *JSON, "--day")
    first = ("--label", "click", "--tolerance", "5%", "--request", "request", "--segment", "country")
    run("monitor", "map.json", "1.parquet", *first, *state, "2026-11-01")
    for option, value, message in (
        ("--tolerance", "2%", "tolerance is 0.02, and 0.05 in the state"),
        ("--label", "shown", "label is shown, and click in the state"),
        ("--top-k", "2", "top_k is top 2 of each request, and top 1 of each request in the state"),
        ("--trials", "shown", "trials is shown, and none in the state"),
    ):
        assert message in run("monitor", "map.json", "2.parquet", option, value, *state, "2026-11-02", code=2)
    short = json.loads(run("monitor", "map.json", "2.parquet", *state, "2026-11-02"))
    kept = MonitorState.load(written / "s.json")
    assert (kept.tolerance, kept.spec.label, kept.spec.segment) == (0.05, "click", "country")
    assert str(kept.spec.top_k) == "top 1 of each request"
    assert short["since_fit"]["rows"] == 10_000
    assert [part["name"] for part in short["segments"]] == ['a "b"\\', "de"]


@pytest.mark.parametrize("option", ["--prometheus", "--report"])
def test_rows_are_counted_only_when_all_other_files_are_written(run, written, option):
    names = {"--prometheus": "m.prom", "--report": "r.html"}
    (written / "folder").mkdir()
    words = ("monitor", "map.json", "good.parquet", "--label", "click", "--state", "s.json", option)
    (written / names[option]).symlink_to("/dev/full")
    run(*words, names[option], code=2)
    assert not (written / "s.json").exists()
    run(*words, f"folder/{names[option]}")
    assert MonitorState.load(written / "s.json").days


def test_times_that_are_not_iso_are_refused_and_rows_without_a_time_are_stated(run, written):
    frame = log_of(1, rows=2_000)
    words = ("monitor", "map.json", "log.csv", "--label", "click", "--time", "at", "--settled-before", "2026-11-03")
    for text in ("%m/%d/%Y", "%d.%m.%Y %H:%M"):
        frame.with_columns(pl.col("at").dt.strftime(text)).write_csv(written / "log.csv")
        assert "pass an ISO date or time" in run(*words, *JSON, code=2)
    for text in ("%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%M:%S+00:00", "%Y-%m-%d %H:%M"):
        frame.with_columns(pl.col("at").dt.strftime(text)).write_csv(written / "log.csv")
        assert json.loads(run(*words, *JSON))["latest"]["rows"] == 1_000
    gaps = pl.when(pl.int_range(2_000) % 2 == 0).then("at")
    frame.with_columns(at=gaps).write_csv(written / "log.csv")
    assert "column 'at'" in run(*words, *JSON, code=2)
    assert json.loads(run(*words, *JSON, "--missing", "drop"))["latest"]["rows"] == 500
    assert "1,000" in run.stderr


def test_the_command_to_run_next_is_stated(run, written):
    common = ("--label", "click", "--state", "s.json", "--day")
    assert run("monitor", "map.json", "good.parquet", *common, "2026-11-01").endswith(
        "\nnext: the same command with the next rows\n"
    )
    run("monitor", "map.json", "bad.parquet", *common, "2026-11-02", code=1)
    (command,) = re.findall("^next: (.*), with the rows since 2026-11-02$", run.stdout, re.M)
    assert command == "uncurse refresh map.json LOG --label click -o new.json"
    run(*command.removeprefix("uncurse ").replace("LOG", "bad.parquet").split())


def test_a_changed_pool_is_watched(run, written):
    rng = np.random.default_rng(0)

    def pool(noise):
        truth = rng.normal(-2, 1, 20_000)
        return pl.DataFrame({f"s{i}": truth + noise * rng.normal(size=20_000) for i in range(2)})

    pool(0.3).write_parquet(written / "pool.parquet")
    pool(0.6).write_parquet(written / "later.parquet")
    run("fit", "pool.parquet", "--scores", "s0,s1", "--scale", "logit", "--replicas", "seeds", "-o", "fitted.json")
    log_of(9, rows=300).write_parquet(written / "small.parquet")
    common = ("monitor", "fitted.json", "small.parquet", "--label", "click", *JSON)
    found = json.loads(run(*common, "--pool", "later.parquet"))
    assert found["decision"] == "watch"
    assert found["shrinkage"]["standard_errors"] < -3
