"""Click logs of a known world: rows with the shape of Criteo's or Avazu's, and the true probability of each.

Nothing is stored and no generator has a state: a row is a function of (world, seed, number of the row), and the effect
of a value a function of (world, field, code), both by SplitMix64 of a counter. So a longer draw begins with the shorter
one, all devices give the same rows up to the rounding of float32, and memory is that of one chunk.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

import torch
from torch import Tensor

from uncurse.errors import UncurseError

from .deep.clicks import Clicks

RESERVED = 2  # code 0 is a missing value, code 1 an unknown one, which a world never draws
TYPES, FACTORS = 16, 3  # types of users and of ads; length of the vectors whose products are the interactions
HEAD = 512  # values of a field, at most, whose order of popularity depends on the row's type
SMALLEST = 200  # `scale` shrinks no field below this many values
SETTLING = 1 << 17  # rows that settle the intercept and the spread; rate known to 0.06% at a rate of 25%


class Number(NamedTuple):
    """A count, shown to the model as log(1 + count): log-normal, cut to a whole number, 0 where missing."""

    center: float  # of the logarithm of the count
    spread: float
    load: float  # correlation with the row's types and activity
    gone: float  # share of rows that lack it
    weight: float  # effect on the logit of one spread, before the whole is standardized


class Field(NamedTuple):
    """A category: P(value k) ∝ ∫ x^(−exponent) dx over k … k + 1, its head shuffled by the type of the user or ad."""

    name: str
    values: int
    exponent: float  # not 1
    latent: str = "user"
    gone: tuple[float, float] = (0.0, 0.0)  # missing where the gate's uniform lies between these
    gate: str = ""  # fields of one gate go missing together
    parent: str = ""  # a field this one is a coarsening of, named before it

    @property
    def weight(self) -> float:
        """Of its effects: less for fields of many values, so that models can learn most of the variance, not all."""
        return float(min(1.0, (1000 / self.values) ** 0.15))


_SOME, _HALF = (0.0, 0.034), (0.0, 0.44)
# Criteo-Kaggle's cardinalities, the large ones shrunk to what 13M rows hold: 8.3M codes in all.
CRITEO_FIELDS = (
    Field("C1", 1460, 1.30),
    Field("C2", 583, 1.05, "ad"),
    Field("C3", 2_370_000, 1.02, "ad", _SOME, "some"),
    Field("C4", 520_000, 1.04, "user", _SOME, "some"),
    Field("C5", 305, 1.40, "ad"),
    Field("C6", 24, 1.10, "user", (0.0, 0.12)),
    Field("C7", 12_500, 0.85, "ad"),
    Field("C8", 633, 1.50),
    Field("C9", 3, 1.50),
    Field("C10", 65_000, 1.06, "ad"),
    Field("C11", 5_600, 0.90),
    Field("C12", 1_980_000, 1.03, "ad", _SOME, "some"),
    Field("C13", 3_190, 0.85, "ad", parent="C7"),
    Field("C14", 27, 1.20, "ad"),
    Field("C15", 14_900, 0.90),
    Field("C16", 1_300_000, 1.02, "user", _SOME, "some"),
    Field("C17", 10, 0.90, "ad"),
    Field("C18", 5_650, 0.95, parent="C15"),
    Field("C19", 2_170, 1.10, "ad", _HALF, "half"),
    Field("C20", 4, 0.50, "ad", parent="C19"),
    Field("C21", 1_650_000, 1.03, "user", _SOME, "some"),
    Field("C22", 18, 1.50, "ad", (0.0, 0.76)),
    Field("C23", 15, 0.95, "user"),
    Field("C24", 230_000, 0.98, "ad", _SOME, "some"),
    Field("C25", 105, 1.20, "ad", _HALF, "half"),
    Field("C26", 110_000, 1.04, "user", _HALF, "half"),
)
CRITEO_NUMBERS = (
    Number(0.4, 1.3, 0.5, 0.45, 0.9),
    Number(1.3, 2.2, 0.3, 0.00, 0.5),
    Number(1.9, 1.4, 0.4, 0.21, 0.3),
    Number(1.5, 1.1, 0.4, 0.22, -0.4),
    Number(7.6, 2.1, 0.6, 0.03, -0.6),
    Number(3.4, 1.6, 0.6, 0.22, -0.9),
    Number(1.1, 1.5, 0.7, 0.04, 1.0),
    Number(1.8, 1.3, 0.5, 0.00, 0.3),
    Number(3.6, 1.5, 0.7, 0.04, 0.5),
    Number(-0.4, 0.7, 0.5, 0.45, 0.6),
    Number(0.5, 0.9, 0.7, 0.04, 1.1),
    Number(-1.5, 1.3, 0.2, 0.77, 0.3),
    Number(1.6, 1.1, 0.4, 0.22, -0.5),
)
CRITEO_PAIRS = (
    "C1 C2, C1 C14, C2 C6, C2 C23, C3 C4, C5 C11, C6 C17, C7 C11, C8 C25, C9 C15, C9 C24, C10 C23, C14 C17, C14 C26, "
    "C17 C23, C17 C20, C22 C23, C19 C26"
)
CRITEO_SLOPES = ((0, "C2"), (4, "C14"), (6, "C17"), (8, "C7"), (10, "C23"), (12, "C11"))  # a number's, by value
AVAZU_FIELDS = (
    Field("hour", 24, 0.10),
    Field("C1", 7, 2.00, "ad"),
    Field("banner_pos", 7, 1.80, "ad"),
    Field("site_id", 4_000, 1.15, "ad", (0.64, 1.0), "site or app"),
    Field("site_domain", 6_000, 0.80, "ad", parent="site_id"),
    Field("site_category", 26, 0.70, "ad", parent="site_id"),
    Field("app_id", 7_000, 1.10, "ad", (0.0, 0.64), "site or app"),
    Field("app_domain", 500, 0.90, "ad", parent="app_id"),
    Field("app_category", 36, 0.80, "ad", parent="app_id"),
    Field("device_id", 1_000_000, 0.70, "user", (0.0, 0.82)),
    Field("device_ip", 2_500_000, 0.90),
    Field("device_model", 7_500, 1.05),
    Field("device_type", 5, 1.60, parent="device_model"),
    Field("device_conn_type", 4, 2.00),
    Field("C14", 2_500, 0.80, "ad"),
    Field("C15", 8, 1.80, "ad", parent="C14"),
    Field("C16", 9, 1.80, "ad", parent="C14"),
    Field("C17", 430, 0.50, "ad", parent="C14"),
    Field("C18", 4, 0.60, "ad", parent="C17"),
    Field("C19", 68, 1.00001, "ad", parent="C17"),
    Field("C20", 170, 1.10, "ad", (0.0, 0.47)),
    Field("C21", 60, 0.70, "ad", parent="C17"),
)
AVAZU_PAIRS = (
    "hour site_category, hour C17, banner_pos C14, site_id device_model, site_id C14, site_category C21, "
    "app_id device_model, app_id C14, app_category C17, device_model C17, device_conn_type C20, device_ip C17"
)


@dataclass(frozen=True)
class ClickWorld:
    """A world with known probabilities; `ClickWorld.criteo` and `ClickWorld.avazu` make one, `draw` its click logs.

    logit P(click) = intercept + main effects + interactions. Each value of each field has a normal main effect, the
    numbers have monotone ones and one that turns; the interactions are ⟨v, w⟩ of the vectors of two values, over pairs
    of fields, and slopes of numbers that depend on a value. Popular values have rows to learn them from, rare ones not.

    Examples
    --------
    >>> world = ClickWorld.avazu(scale=0.001, seed=1)
    >>> clicks = world.draw(1000, seed=7)
    >>> clicks.codes.shape, len(world.sizes), bool((clicks.truth == world.truth(clicks.dense, clicks.codes)).all())
    (torch.Size([1000, 22]), 22, True)
    """

    numbers: tuple[Number, ...] = field(repr=False)
    fields: tuple[Field, ...] = field(repr=False)
    pairs: tuple[tuple[int, int], ...] = field(repr=False)  # fields that interact
    slopes: tuple[tuple[int, int], ...] = field(repr=False)  # (number, field whose value sets its slope)
    rate: float  # the mean of the true probability
    spread: float  # standard deviation of the logit
    mixing: float  # the interactions' share of its variance, correlation with the main effects apart
    scale: float = 1.0  # of the number of values of each field
    seed: int = 0  # of the effects; two draws of a world share them

    def __post_init__(self) -> None:
        if not 0 < self.rate < 1:
            raise UncurseError(f"rate={self.rate}; pass the share of rows with a click, between 0 and 1, such as 0.25")
        if not 0 < self.scale < float("inf"):
            raise UncurseError(f"scale={self.scale}; pass a positive one: 1 for 15M rows, 0.003 for 40,000")

    @classmethod
    def criteo(cls, rate: float = 0.256, *, scale: float = 1.0, seed: int = 0) -> ClickWorld:
        """13 numbers and 26 fields with 8.3M codes, as the first 13M rows of Criteo-Kaggle have.

        >>> world = ClickWorld.criteo()
        >>> len(world.numbers), len(world.sizes), round(sum(world.sizes) / 1e6, 1)
        (13, 26, 8.3)
        """
        slopes = tuple((number, _place(CRITEO_FIELDS, name)) for number, name in CRITEO_SLOPES)
        pairs = _paired(CRITEO_FIELDS, CRITEO_PAIRS)
        return cls(CRITEO_NUMBERS, CRITEO_FIELDS, pairs, slopes, rate, 1.4, 0.3, scale, seed)

    @classmethod
    def avazu(cls, rate: float = 0.17, *, scale: float = 1.0, seed: int = 0) -> ClickWorld:
        """22 fields, no number: site or app, device and ad, as 10M rows of Avazu have them.

        >>> ClickWorld.avazu(0.05, scale=0.01).sizes[:5]
        (26, 9, 9, 202, 202)
        """
        return cls((), AVAZU_FIELDS, _paired(AVAZU_FIELDS, AVAZU_PAIRS), (), rate, 1.1, 0.3, scale, seed)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Codes of each field, the two reserved ones included."""
        return tuple(RESERVED + self._values(item) for item in self.fields)

    def draw(self, rows: int, *, seed: int, device: str | torch.device = "cpu") -> Clicks:
        """Rows of this world as tensors on a device; a larger draw of the same seed begins with the same rows.

        >>> world = ClickWorld.criteo(scale=0.001)
        >>> few, many = world.draw(10, seed=1), world.draw(20, seed=1)
        >>> few.dense.shape, bool((few.codes == many.codes[:10]).all())
        (torch.Size([10, 13]), True)
        """
        if rows < 1:
            raise UncurseError(f"rows={rows}; ask for one row or more")
        at = torch.device(device)
        dense = torch.empty((rows, len(self.numbers)), dtype=torch.float32, device=at)
        codes = torch.empty((rows, len(self.fields)), dtype=torch.int32, device=at)
        truth = torch.empty(rows, dtype=torch.float32, device=at)
        label = torch.empty(rows, dtype=torch.uint8, device=at)
        for part in _chunks(rows, at):
            count = torch.arange(part.start, part.stop, device=at)
            self._fill(dense[part], codes[part], count, seed)
            truth[part] = self.truth(dense[part], codes[part])
            label[part] = _uniform(_key(self.seed, "rows", seed, "label"), count) < truth[part]
        return Clicks(dense, codes, label, self.sizes, truth)

    def truth(self, dense: Tensor, codes: Tensor) -> Tensor:
        """P(click) of encoded rows, (n,) float32; any codes below `sizes` have one."""
        main, mixed = self.parts(dense, codes)
        return torch.sigmoid(_settled(self)[-1] + main + mixed)

    def parts(self, dense: Tensor, codes: Tensor) -> tuple[Tensor, Tensor]:
        """The main effects and the interactions of encoded rows, (n,) each: the logit less its intercept."""
        (middle, of_main), (center, of_mixed) = _settled(self)[:2]
        main, mixed = self._raw(dense, codes)
        return (main - middle) * of_main, (mixed - center) * of_mixed

    def _values(self, item: Field) -> int:
        return item.values if item.values <= SMALLEST else max(SMALLEST, round(item.values * self.scale))

    def _fill(self, dense: Tensor, codes: Tensor, count: Tensor, seed: int | str) -> None:
        """Draw the rows numbered `count` into (n, D) `dense` and (n, F) `codes`."""

        def uniform(*stream: str | int) -> Tensor:
            return _uniform(_key(self.seed, "rows", seed, *stream), count)

        types = {name: _ranks(uniform(name), TYPES, 0.5) for name in ("user", "ad")}
        heads = _heads(self, str(codes.device))
        for place, item in enumerate(self.fields):
            if item.parent:  # a value of the parent has one of the child's, and the child's are popular by its exponent
                above = codes[:, _place(self.fields, item.parent)].long()
                ranks = _ranks(_uniform(_key(self.seed, "child", place), above), self._values(item), item.exponent)
                missing = above == 0
            else:
                ranks = _ranks(uniform("value", place), self._values(item), item.exponent)
                head = heads[place]
                shuffled = head[types[item.latent], ranks.clamp(max=head.shape[1] - 1)]
                ranks = torch.where(ranks < head.shape[1], shuffled, ranks)
                low, high = item.gone
                gate = uniform("gate", item.gate or item.name) if high > low else None
                missing = torch.zeros_like(ranks, dtype=torch.bool) if gate is None else (gate >= low) & (gate < high)
            codes[:, place] = torch.where(missing, 0, ranks + RESERVED)
        if self.numbers:
            active = _normal(uniform("active"))
        for place, number in enumerate(self.numbers):
            shared = active
            for name, value in types.items():
                shared = shared + 0.5 * _normal(_uniform(_key(self.seed, "number", name, place), value))
            own = (1 - number.load**2) ** 0.5 * _normal(uniform("number", place))
            logs = number.center + number.spread * (number.load * shared / 1.5**0.5 + own)
            present = uniform("number is there", place) >= number.gone
            dense[:, place] = torch.log1p(torch.floor(torch.exp(logs)) * present)

    def _raw(self, dense: Tensor, codes: Tensor) -> tuple[Tensor, Tensor]:
        """Main effects and interactions before they are standardized."""

        def effect(kind: str, place: int) -> Tensor:
            normals = _normal(_uniform(_key(self.seed, kind, place), codes[:, place].long()))
            return (self.fields[place].weight * normals).float()

        main = torch.zeros(len(codes), dtype=torch.float32, device=codes.device)
        mixed = torch.zeros_like(main)
        for place in range(len(self.fields)):
            main += effect("main", place)
        paired = sorted({place for pair in self.pairs for place in pair})
        for factor in range(FACTORS):
            vectors = {place: effect(f"factor {factor}", place) for place in paired}
            for one, other in self.pairs:
                mixed += vectors[one] * vectors[other] / FACTORS**0.5
        levels = [((dense[:, j] - n.center) / n.spread).clamp(-2, 2) for j, n in enumerate(self.numbers)]
        for level, number in zip(levels, self.numbers, strict=True):
            main += number.weight * level
        if levels:
            main += 0.8 * torch.cos(2 * levels[1])  # the one that turns
        for number_place, place in self.slopes:
            mixed += levels[number_place] * effect("slope", place)
        return main, mixed


def _place(fields: tuple[Field, ...], name: str) -> int:
    return [item.name for item in fields].index(name)


def _paired(fields: tuple[Field, ...], pairs: str) -> tuple[tuple[int, int], ...]:
    names = (pair.split() for pair in pairs.split(","))
    return tuple((_place(fields, one), _place(fields, other)) for one, other in names)


def _chunks(rows: int, device: torch.device) -> Iterator[slice]:
    """Slices that keep a GPU busy in half a GB, or that fit a processor's cache and gain nothing by threads."""
    step, threads = 1 << (15 if device.type == "cpu" else 20), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield from (slice(start, min(start + step, rows)) for start in range(0, rows, step))
    finally:
        torch.set_num_threads(threads)


def _key(*words: str | int) -> int:
    """A stream's start, 64 bits with sign; the same in all processes, as `hash` is not."""
    text = "/".join(map(str, words))  # not repr, in which numpy's integers are not Python's
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)


def _uniform(key: int, count: Tensor) -> Tensor:
    """Uniforms strictly inside (0, 1), float64, for counts of int64: SplitMix64, its shifts without sign."""
    bits: Tensor = count * -0x61C8864680B583EB + key  # 64 bits wrap, here and below
    bits = (bits ^ ((bits >> 30) & ((1 << 34) - 1))) * -0x40A7B892E31B1A47
    bits = (bits ^ ((bits >> 27) & ((1 << 37) - 1))) * -0x6B2FB644ECCEEE15
    bits = bits ^ ((bits >> 31) & ((1 << 33) - 1))
    bits = (bits >> 12) & ((1 << 52) - 1)
    return bits.double().add_(0.5).mul_(2.0**-52)


def _normal(uniforms: Tensor) -> Tensor:
    return torch.erfinv(uniforms * 2 - 1) * 2**0.5


def _ranks(uniforms: Tensor, values: int, exponent: float) -> Tensor:
    """Ranks 0 … values − 1 by the inverse distribution of a power law; float64, for float32 skips ranks of the tail."""
    power = 1 - exponent
    last = (values + 1) ** power
    return torch.pow(1 + uniforms * (last - 1), 1 / power).long().sub_(1).clamp_(0, values - 1)


@lru_cache(maxsize=16)
def _heads(world: ClickWorld, device: str) -> tuple[Tensor, ...]:
    """The value at each rank of each field's head, by type of the row: (TYPES, head) each."""
    # A type orders the values by log(rank) + N(0, 1), so types differ and popularity stays near a power law.
    heads = []
    for place, item in enumerate(world.fields):
        size = min(HEAD, world._values(item))
        noise = _normal(_uniform(_key(world.seed, "head", place), torch.arange(TYPES * size)))
        order = torch.log(torch.arange(1, size + 1).double()) + noise.reshape(TYPES, size)
        heads.append(torch.argsort(order, dim=1).to(device))
    return tuple(heads)


@lru_cache(maxsize=16)
def _settled(world: ClickWorld) -> tuple[tuple[float, float], tuple[float, float], float]:
    """(mean, factor) of the main effects and of the interactions, and the intercept that meets the rate."""
    # From one sample on the processor whatever the device and the draw, so that all draws share one function.
    main, mixed = torch.empty(2, SETTLING, dtype=torch.float64)
    for part in _chunks(SETTLING, torch.device("cpu")):
        count = torch.arange(part.start, part.stop)
        dense = torch.empty((len(count), len(world.numbers)))
        codes = torch.empty((len(count), len(world.fields)), dtype=torch.int32)
        world._fill(dense, codes, count, "settling")
        main[part], mixed[part] = world._raw(dense, codes)
    middles = [float(part.mean()) for part in (main, mixed)]
    factors = [(1 - world.mixing) ** 0.5 / float(main.std()), world.mixing**0.5 / float(mixed.std())]
    logits = (main - middles[0]) * factors[0] + (mixed - middles[1]) * factors[1]
    stretch = world.spread / float(logits.std())
    logits *= stretch
    low, high = -50.0, 50.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if float(torch.sigmoid(logits + middle).mean()) < world.rate else (low, middle)
    return (middles[0], factors[0] * stretch), (middles[1], factors[1] * stretch), (low + high) / 2
