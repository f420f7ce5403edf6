"""The auction simulator: accounts against quadrature and theory, policies, the closed loop, replay, and the command."""

import json
import math
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import special, stats

from uncurse import Affine, UncurseError
from uncurse_lab.auction import LABELS, TRUTH, Landscape, Market, Settings, simulate
from uncurse_lab.auction.loop import FROZEN, REFRESHED, World, run_loop
from uncurse_lab.auction.market import Auctions, settle
from uncurse_lab.auction.policies import as_served
from uncurse_lab.auction.replay import CAVEATS, fit_on_log, intervals_of, read_log, replay
from uncurse_lab.auction.theory import causes, expected_account
from uncurse_lab.theory import selected_mean, selected_truth

FREE = Landscape((0.0, 1e-9), (0.0, 1.0))  # every bid wins
SMALL = Settings(auctions=30_000, repetitions=2, history=60_000, pool=20_000)
DATA = Path(os.environ.get("UNCURSE_IPINYOU", Path(__file__).parents[3] / "shared" / "data" / "ipinyou"))
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"needs the iPinYou files in {DATA}; set UNCURSE_IPINYOU")


def error(account):
    return account.error


def chosen(market, count, seed=0):
    return list(market.auctions(count, seed))


# ---------------------------------------------------------------------------- the landscape


def test_a_landscape_agrees_with_its_draws():
    landscape = Landscape.default()
    prices = landscape.draw(np.random.default_rng(0), 400_000)
    for bid in (5.0, 40.0, 120.0, 500.0):
        won = prices < bid
        assert landscape.win_probability(bid) == pytest.approx(won.mean(), abs=0.004)
        assert landscape.expected_price([bid])[0] == pytest.approx((prices * won).mean(), rel=0.05)


def test_a_histogram_and_its_prices_give_one_landscape(tmp_path):
    counts = [0, 3, 0, 5, 2]
    prices = np.repeat(np.arange(5.0), counts)
    histogram = Landscape.from_histogram(counts)
    assert histogram.win_probability([0.5, 1.5, 3.5, 4.5]) == pytest.approx([0.0, 0.3, 0.8, 1.0])
    assert Landscape.from_prices(prices).win_probability([1.0, 3.0, 4.0])[-1] == 1.0
    (tmp_path / "a.json").write_text(json.dumps(counts))
    (tmp_path / "b.json").write_text(json.dumps({"price_counter_train": counts, "dim": 7}))
    (tmp_path / "c.csv").write_text("price\n" + "\n".join(f"{p:g}" for p in prices))
    assert Landscape.from_file(tmp_path / "a.json") == Landscape.from_file(tmp_path / "b.json") == histogram
    assert Landscape.from_file(tmp_path / "c.csv") == Landscape.from_prices(prices)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Landscape((1.0, 0.0), (0.0, 1.0)), "ascending prices"),
        (lambda: Landscape((0.0, 1.0), (0.0, 0.5)), "ascend to 1"),
        (lambda: Landscape.from_histogram([0, 0]), "ascend to 1"),
        (lambda: Landscape.from_prices([-1.0]), "0 or more"),
        (lambda: Landscape.from_file("no.json"), "cannot read no.json"),
        (lambda: Market(candidates=0), "candidates"),
        (lambda: Market(noise=-1.0), "noise=-1"),
        (lambda: Market(price="third"), "second"),
        (lambda: Settings(labels="guessed"), "labels"),
        (lambda: Settings(explore=1.5), r"explore=1\.5"),
        (lambda: Settings(budget=0.0), "budget=0"),
        (lambda: simulate(Market(), SMALL, policies=["magic"]), "no policy 'magic'"),
        (lambda: simulate(Market(value=1e-9), SMALL, policies=["as served"]), "raise the value of a click"),
        (lambda: run_loop(World(), 3), "days=3"),
        (lambda: run_loop(World(), 5, labels="random"), "pass explore"),
        (lambda: World(known=2.0), "known=2"),
        (lambda: World(smoothing=0.0), "smoothing=0"),
    ],
)
def test_errors_name_the_value_and_the_remedy(make, message):
    with pytest.raises(UncurseError, match=message):
        make()


# ---------------------------------------------------------------------------- accounts against quadrature and theory


@pytest.mark.parametrize("price", ["second", "first"])
@pytest.mark.parametrize("candidates", [1, 20])
def test_accounts_match_quadrature(price, candidates):
    market = Market(candidates=candidates, price=price, mean=-5.0, value=1.0, shading=0.9)
    parts = [settle(market, one, as_served(one.served)) for i in range(8) for one in chosen(market, 50_000, i)]
    expected = expected_account(market)
    for name in ("won", "predicted", "clicks", "spend", "charged", "delivered", "lost", "overpaid", "welfare"):
        values = np.array([getattr(part, name) / part.auctions for part in parts])
        spread = values.std(ddof=1) / math.sqrt(len(values))
        assert values.mean() == pytest.approx(getattr(expected, name), abs=5 * spread + 1e-9), name


@pytest.mark.parametrize("price", ["second", "first"])
def test_with_the_truth_the_overcharge_is_zero_within_its_interval(price):
    # Clicks are drawn here: with expected clicks the overcharge would be zero by construction.
    market = Market(candidates=50, price=price, mean=-5.0, value=1.0)
    (auctions,) = chosen(market, 100_000)
    clicks = np.random.default_rng(1).random(100_000) < auctions.clicks
    log = Auctions(special.logit(auctions.clicks)[:, None], clicks.astype(float), auctions.prices)
    truth = replay(log, {}, value=1.0, price=price).accounts["as served"]
    _, (low, high) = intervals_of(truth, 1.0)
    assert truth.clicks > 1000
    assert low < 0 < high
    served = replay(replace(log, scores=auctions.scores), {}, value=1.0, price=price).accounts["as served"]
    assert intervals_of(served, 1.0)[1][0] > 0


def test_with_one_candidate_the_remaining_bias_is_the_selection_of_the_exchange():
    market = Market(candidates=1, mean=-5.0, value=1.0)
    unbiased = lambda served: as_served(served - market.noise**2 / 2)  # noqa: E731  # right on average, if clicks are rare
    assert expected_account(market, unbiased, exchange=False).error == pytest.approx(0.0, abs=0.003)
    expected = expected_account(market, unbiased).error
    parts = [settle(market, one, unbiased(one.served)).error for i in range(8) for one in chosen(market, 100_000, i)]
    assert expected > 0.05
    assert np.mean(parts) == pytest.approx(expected, abs=4 * np.std(parts, ddof=1) / math.sqrt(len(parts)))


def theorem_bias(market):
    """Return the mean prediction and mean true rate of the chosen ads, before the auction, by Theorem 1.

    The highest of n is a mixture of the selections of Theorem 1: if the share α has the distribution Beta(2, n − 1),
    then a random one of the top share α is distributed as the highest of n.
    """
    s = float(np.hypot(market.spread, market.noise))
    signal = market.shrinkage * s
    residual = market.spread * float(np.sqrt(1 - market.shrinkage))
    shares = stats.beta(2, market.candidates - 1).ppf((np.arange(400) + 0.5) / 400)
    predicted = [float(selected_mean("logistic", market.mean, s, alpha)) for alpha in shares]
    rate = [
        float(selected_truth("logistic", mean=market.mean, signal=signal, residual=residual, alpha=alpha))
        for alpha in shares
    ]
    return float(np.mean(predicted)), float(np.mean(rate))


def test_with_many_candidates_the_bias_is_that_of_theorem_1():
    market = Market(candidates=100, landscape=FREE)
    predicted, rate = theorem_bias(market)
    exact = expected_account(market)
    assert (exact.predicted, exact.clicks) == pytest.approx((predicted, rate), rel=2e-3)
    parts = [settle(market, one, as_served(one.served)) for i in range(6) for one in chosen(market, 20_000, i)]
    bias = [(part.predicted - part.clicks) / part.auctions for part in parts]
    assert np.mean(bias) == pytest.approx(predicted - rate, abs=4 * np.std(bias, ddof=1) / math.sqrt(len(bias)) + 1e-5)


def test_each_cause_adds_to_the_over_prediction():
    (_, noise), (_, choice), (_, auction) = causes(Market())
    assert (noise, choice, auction) == pytest.approx((0.045, 0.210, 0.227), abs=5e-4)


# ---------------------------------------------------------------------------- policies in a market


@pytest.fixture(scope="module")
def outcome():
    return simulate(Market(mean=-5.5, value=1.2), SMALL)


def test_the_truth_has_no_overcharge_and_the_best_welfare(outcome):
    assert outcome.mean(TRUTH, "error") == (0.0, 0.0)
    for name in outcome.accounts:
        for own, true in zip(outcome.accounts[name], outcome.accounts[TRUTH], strict=True):
            assert own.surplus <= true.surplus
            assert own.welfare <= true.welfare
            assert own.best_welfare == true.best_welfare == pytest.approx(true.welfare)


def test_served_scores_over_predict_and_auto_does_not(outcome):
    assert outcome.mean("as served", "error")[0] > 0.15
    assert abs(outcome.mean("auto", "error")[0]) < 0.05
    served, auto = outcome.accounts["as served"][0], outcome.accounts["auto"][0]
    assert served.spend > auto.spend
    assert served.overpaid > auto.overpaid
    assert served.lost < auto.lost
    assert served.cost_per_click > auto.cost_per_click


def test_a_budget_is_kept_and_shading_saves_money():
    options = replace(SMALL, repetitions=1)
    market = Market(price="first")
    plain = simulate(market, options, policies=["as served"])
    paced = simulate(market, replace(options, budget=10.0), policies=["as served"])
    shaded = simulate(replace(market, shading=0.7), options, policies=["as served"])
    spend = [one.mean("as served", "spend")[0] for one in (paced, plain)]
    assert spend[0] == pytest.approx(10.0, rel=0.05)
    assert spend[1] > 11
    assert shaded.accounts["as served"][0].spend < 0.8 * plain.accounts["as served"][0].spend
    assert plain.accounts["as served"][0].surplus < 0  # in a first-price auction over-prediction is paid in full
    assert plain.accounts[TRUTH][0].surplus == pytest.approx(0.0, abs=1e-9)


def test_labels_of_an_earlier_model_mislead_calibrators():
    found = simulate(
        Market(mean=-5.0, value=0.7), replace(SMALL, labels="earlier"), policies=["as served", "platt", "auto"]
    )
    served, platt, auto = (found.mean(name, "error")[0] for name in ("as served", "platt", "auto"))
    assert platt > 0.5 * served
    assert abs(auto) < 0.25 * served


@pytest.mark.parametrize("labels", LABELS)
def test_random_traffic_adds_labeled_rows(labels):
    options = replace(SMALL, auctions=1000, repetitions=1, labels=labels, explore=0.1)
    found = simulate(Market(mean=-5.0, value=1.0), options, policies=["multiplier"])
    rows, clicks = found.labeled[0]
    assert 0.1 * options.history < rows <= options.history
    assert 0 < clicks < rows
    assert (rows == options.history) == (labels == "random")


@pytest.mark.theory
@pytest.mark.parametrize(("labels", "repetitions"), [("won", 8), ("earlier", 3)])
def test_the_map_of_auto_removes_nine_tenths_of_the_overcharge(labels, repetitions):
    settings = Settings(repetitions=repetitions, labels=labels)
    found = simulate(Market(candidates=100), settings, policies=["as served", "auto"])
    removed, spread = found.removed("auto")
    assert removed - spread > 0.9


# ---------------------------------------------------------------------------- the closed loop

LITTLE = World(ads=300, requests=4000, candidates=20)


def test_a_closed_loop_is_repeatable_and_policies_learn_from_their_own_wins():
    first, again = (run_loop(LITTLE, 6, policies=["as served", "vad"], repetitions=1, pool=2000) for _ in range(2))
    assert first.accounts == again.accounts
    assert first.days == (3, 4, 5)
    served, vad = (first.accounts[name][0] for name in ("as served", "vad"))
    assert served[0].won != vad[0].won  # other bids
    assert served[-1].best_welfare != vad[-1].best_welfare  # so the model learned from other impressions
    assert first.by_day(TRUTH, error) == [(0.0, pytest.approx(math.nan, nan_ok=True))] * 3


@pytest.mark.theory
def test_directions_of_the_errors_in_a_closed_loop():
    world = World(ads=2000, requests=20_000)
    policies = ["as served", "multiplier", "platt", "isotonic", "vad", "labels", "auto", FROZEN, REFRESHED]
    loop = run_loop(world, 20, policies=policies, repetitions=1, pool=10_000)
    late = {
        name: [a.error for d, a in zip(loop.days, loop.accounts[name][0], strict=True) if d >= 10]
        for name in loop.accounts
    }
    mean = {name: np.mean(errors) for name, errors in late.items()}
    size = {name: np.mean(np.abs(errors)) for name, errors in late.items()}
    assert min(late["as served"]) > 0.1  # the best of noisy scores, every day
    for name in ("multiplier", "platt", "isotonic"):  # their labels are of winners of another training
        assert 0.05 < mean[name] < mean["as served"]
    assert mean["vad"] < -0.02  # one λ for all ads over-corrects
    for name in ("labels", "auto"):
        assert size[name] < 0.5 * min(size["platt"], size["as served"])
    assert mean[REFRESHED] > mean[FROZEN] + 0.05  # a level from the winners of yesterday brings the bias back


@pytest.mark.theory
def test_labels_of_random_traffic_reduce_the_bias_of_calibrators():
    world = World(ads=2000, requests=20_000)
    shown, random = (
        run_loop(world, 20, policies=["platt"], explore=0.2, labels=labels, repetitions=3)
        for labels in ("shown", "random")
    )
    bias = [loop.over_days("platt", error) for loop in (shown, random)]
    assert bias[0][0] > 0.08
    assert bias[1][0] + 2 * bias[1][1] < bias[0][0]


# ---------------------------------------------------------------------------- replay


def test_a_replay_settles_each_auction():
    scores, prices = np.log([1.0, 1.0, 1.0, 1 / 3]), np.array([10.0, 50.0, 500.0, 99.0])
    log = Auctions(scores[:, None], np.array([1.0, 0.0, 0.0, 1.0]), prices)
    found = replay(log, {"half": lambda served: as_served(served) / 2}, value=0.2)
    served, half = found.accounts.values()
    assert (served.won, served.clicks, served.predicted) == (2, 1, 1.0)  # bids of 100, 100, 100, 50
    assert served.spend == pytest.approx(0.06)
    assert (half.won, half.spend) == (1, pytest.approx(0.01))
    first = replay(log, {}, value=0.2, price="first").accounts["as served"]
    assert first.spend == pytest.approx(0.2)
    assert replay(log, {}).market.value == pytest.approx(log.prices.sum() / 1000 / 2)
    with pytest.raises(UncurseError, match="no clicks"):
        replay(replace(log, clicks=np.zeros(4)), {})
    with pytest.raises(UncurseError, match="0 clicks"):
        fit_on_log(replace(log, clicks=np.zeros(4, int)))


def test_logs_with_and_without_a_header_are_read(tmp_path):
    rows = [(0, 50, 0.001), (1, 80, 0.25)]
    (tmp_path / "a.csv").write_text("click,price,p\n" + "\n".join(",".join(map(str, row)) for row in rows))
    (tmp_path / "b.txt").write_text("\n".join("\t".join(map(str, row)) for row in rows))
    a = read_log(tmp_path / "a.csv", "click", "price", "p")
    b = read_log(tmp_path / "b.txt", "0", "1", "2")
    for name in ("clicks", "prices", "scores"):
        assert (getattr(a, name) == getattr(b, name)).all()
    assert a.served[1] == pytest.approx(math.log(1 / 3))
    for path, columns, message in (
        ("b.txt", ("0", "1", "p"), "no column 'p'; it has '0', '1', '2'"),
        ("a.csv", ("click", "cost", "p"), "cost"),
        ("no.txt", ("0", "1", "2"), "no.txt"),
        ("a.csv", ("price", "price", "p"), "named twice"),
        ("a.csv", ("price", "click", "p"), "0 or 1|0/1"),
    ):
        with pytest.raises(UncurseError, match=message):
            read_log(tmp_path / path, *columns)
    (tmp_path / "c.csv").write_text("click,price,p\n0,,0.5\n")
    with pytest.raises(UncurseError, match="missing"):
        read_log(tmp_path / "c.csv", "click", "price", "p")


# ---------------------------------------------------------------------------- the command


def test_the_command_prints_money_first_and_writes_all_formats(run, tmp_path):
    words = ["auction", "--quick", "--auctions", "5000", "--candidates", "20"]
    words += ["--policy", "as served", "--policy", "vad"]
    text = run(*words, "--format", "table", "--markdown", "a.md")
    assert text.startswith("As served, advertisers are charged ")
    assert "more than the clicks they get are worth" in " ".join(text.split())
    assert "**Charges and clicks**" in (tmp_path / "a.md").read_text()
    document = json.loads(run(*words, "--format", "json"))
    assert document["kind"] == "auction"
    assert document["market"]["candidates"] == 20
    assert [record["policy"] for record in document["records"]] == ["as served", "vad", "truth"]


def test_the_page_of_the_command_is_one_offline_file(run, tmp_path, monkeypatch):
    monkeypatch.setattr("uncurse_lab.auction.results.SENSITIVITY", {"candidates": (1, 5), "noise": (0.1, 0.2)})
    sizes = ("--quick", "--auctions", "2000", "--repetitions", "2", "--candidates", "10", "--value", "20")
    policies = ("--policy", "as served", "--policy", "multiplier")
    run("auction", *sizes, *policies, "--sensitivity", "--days", "5", "--report", "a.html", "--currency", "€")
    page = (tmp_path / "a.html").read_text()
    assert ">As served, advertisers are charged" in page
    assert "€ for 1,000 requests" in page
    for title in ("Overcharge by ads for each request", "Overcharge by noise of the log odds", "Closed loop"):
        assert f"<caption><span>{title}" in page
    assert page.count("<svg") == 2 * 5  # for desktops and phones
    assert "<script" not in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "--sensitivity" in page


def test_a_replay_prints_its_caveats(run, tmp_path):
    market = Market(candidates=20, mean=-4.0, value=0.3)
    (auctions,) = chosen(market, 4000)
    clicks = np.random.default_rng(0).random(4000) < auctions.clicks
    rows = zip(clicks.astype(int), auctions.prices, as_served(auctions.served), strict=True)
    (tmp_path / "log.csv").write_text("c,p,s\n" + "\n".join(f"{c},{p:.3f},{s:.6f}" for c, p, s in rows))
    Affine(0.9, -0.4, scale="probability").save(tmp_path / "map.json")
    words = ("auction", "--replay", "log.csv", "--click", "c", "--price", "p", "--score", "s", "--scale", "probability")
    text = run(*words, "--map", "map.json", "--value", "0.3")
    for line in CAVEATS:
        assert line in text
    for name in ("as served", "map.json"):
        assert f"\n{name} " in text
    document = json.loads(run(*words, "--value", "0.3", "--auction", "first", "--format", "json"))
    assert document["records"][0]["spend"] > 0
    assert document["caveats"] == list(CAVEATS)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--click", "c"], "--click is for a log; pass --replay LOG too"),
        (["--replay", "x.csv", "--noise", "0.1"], "--noise is for a simulated market; omit it with --replay"),
        (["--replay", "x.csv", "--click", "c"], "--replay needs --click, --price, --score and --scale"),
        (["--explore", "2"], "--explore"),
        (["--bootstrap"], "pass --days 30 too"),
        (["--days", "2"], "--days"),
    ],
)
def test_bad_options_are_one_line(run, words, message):
    said = run("auction", "--quick", *words, code=2) if "--replay" not in words else run("auction", *words, code=2)
    assert message in said
    assert len(said.strip().splitlines()) == 1


# ---------------------------------------------------------------------------- real prices


@needs_data
def test_real_landscapes_and_logs_can_be_used():
    landscape = Landscape.from_file(DATA / "rlbdp_info_2997.json")
    found = simulate(Market(landscape=landscape), replace(SMALL, repetitions=1), policies=["as served", "auto"])
    assert found.removed("auto")[0] > 0.6
    train, test = (read_log(DATA / f"rtbarbitrage_1458.{part}.txt.gz", "0", "1", "2") for part in ("train", "test"))
    assert (len(train.clicks), len(test.clicks)) == (220_000, 80_000)
    assert (train.clicks.sum(), test.clicks.sum()) == (156, 51)
    accounts = replay(test, fit_on_log(train)).accounts
    assert intervals_of(accounts["as served"], 1.0)[0][0] > 0  # over-predicted among the auctions that it wins
    assert accounts["platt"].error < accounts["as served"].error


@needs_data
def test_the_default_landscape_has_the_shape_of_real_prices():
    default = Landscape.default()
    grid = np.arange(5.0, 300.0, 5.0)
    files = sorted(DATA.glob("rlbdp_info_*.json"))
    real = [Landscape.from_file(file).win_probability(grid) for file in files]
    assert len(files) == 9
    assert np.abs(default.win_probability(grid) - np.mean(real, axis=0)).max() < 0.04
