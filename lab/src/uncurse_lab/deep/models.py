"""The click models of the paper as plain PyTorch modules, to be trained, saved, exported and folded like any other."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from uncurse.errors import UncurseError
from uncurse.validation import check_count


class ClickModel(nn.Module):
    """A module that takes numbers (rows, numbers) and codes (rows, fields) and returns logits (rows,)."""

    def __init__(self, sizes: Sequence[int], numbers: int, embedding: int, **widths: Any) -> None:
        super().__init__()
        name = type(self).__name__
        self.sizes = tuple(check_count(size, "sizes") for size in sizes)
        if not self.sizes:
            raise UncurseError(f"{name} needs fields of categories and sizes is empty; use a network of your own")
        self.numbers = numbers
        self.options: dict[str, Any] = {"embedding": embedding, **widths}

    def __repr__(self) -> str:
        options = "".join(f", {name}={value}" for name, value in self.options.items())
        shape = f"{len(self.sizes)} fields, {sum(self.sizes):,} codes, {self.numbers} numbers"
        return f"{type(self).__name__}({shape}{options})"

    def embed(self, tables: nn.ModuleList, codes: Tensor) -> Tensor:
        """Look up the codes of each field: (rows, fields) to (rows, fields, width)."""
        return torch.stack([table(codes[:, field]) for field, table in enumerate(tables)], 1)


def check_codes(codes: Tensor, sizes: Sequence[int]) -> None:
    """Raise UncurseError if a code is outside its field; a stack would look up a row of another field."""
    if codes.is_floating_point() or codes.dtype in (torch.bool, torch.uint16, torch.uint32, torch.uint64):
        raise UncurseError(f"codes are {codes.dtype}; pass int32 or int64")
    if not len(codes):
        return
    bounds = torch.stack([codes.amin(0), codes.amax(0)]).tolist()
    for field, (low, high, size) in enumerate(zip(*bounds, sizes, strict=True)):
        if low < 0 or high >= size:
            raise UncurseError(
                f"field {field} has codes from {low} to {high}, and its size is {size}; pass codes from 0 to {size - 1}"
            )


class DLRM(ClickModel):
    """Deep learning recommendation model (Naumov et al. 2019), the model of the paper's Criteo experiment.

    The bottom network turns the numbers into one more embedding. The dot products of every two embeddings, and the
    output of the bottom network, go through the top network to a logit. `sizes` are the numbers of codes of the fields,
    `numbers` is that of numeric inputs, `embedding` the width of the embeddings; `bottom` and `top` are the widths of
    the hidden layers.

    Examples
    --------
    >>> model = DLRM([10, 20], numbers=3, bottom=(8,), top=(8,))
    >>> model(torch.zeros(5, 3), torch.zeros(5, 2, dtype=torch.long)).shape
    torch.Size([5])
    """

    def __init__(
        self,
        sizes: Sequence[int],
        numbers: int = 0,
        *,
        embedding: int = 16,
        bottom: tuple[int, ...] = (512, 256, 64),
        top: tuple[int, ...] = (512, 256),
    ) -> None:
        super().__init__(sizes, numbers, embedding, bottom=tuple(bottom), top=tuple(top))
        vectors = len(self.sizes) + 1
        self.pairs: list[list[int]] = torch.tril_indices(vectors, vectors, -1, device="cpu").tolist()
        self.embeddings = nn.ModuleList(_table(size, embedding, size**-0.5) for size in self.sizes)
        self.bottom = _network([numbers, *bottom, embedding], last_relu=True)
        self.top = _network([embedding + vectors * (vectors - 1) // 2, *top, 1], last_relu=False)

    def forward(self, numbers: Tensor, codes: Tensor) -> Tensor:
        """Return the logits of rows."""
        x = self.bottom(numbers)
        vectors = torch.cat([x.unsqueeze(1), self.embed(self.embeddings, codes)], 1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))
        rows, columns = self.pairs
        logits: Tensor = self.top(torch.cat([x, products[:, rows, columns]], 1)).squeeze(1)
        return logits


class XDeepFM(ClickModel):
    """Extreme deep factorization machine (Lian et al. 2018), the model of the paper's Avazu experiment.

    Layers and initial weights are those of deepctr-torch. The logit is the sum of a linear part, of a network over all
    embeddings, and of compressed interactions. A layer of interactions makes maps: weighted sums of the products of
    the fields with the maps of the layer before, element by element. Half of the maps go on to the next layer. Numbers
    go to the linear part and to the network. The last layer, `out`, adds the bias; its weight is 1 and is not trained,
    so that a map can be folded into it. `hidden` are the widths of the network, `interactions` the numbers of maps of
    each layer of interactions (even where another layer follows), and `deviation` is the standard deviation of the
    initial embeddings and weights of the network.

    Examples
    --------
    >>> model = XDeepFM([10, 20], hidden=(8,), interactions=(4,))
    >>> model(torch.zeros(5, 0), torch.zeros(5, 2, dtype=torch.long)).shape
    torch.Size([5])
    """

    def __init__(
        self,
        sizes: Sequence[int],
        numbers: int = 0,
        *,
        embedding: int = 4,
        hidden: tuple[int, ...] = (256, 256),
        interactions: tuple[int, ...] = (256, 128),
        deviation: float = 1e-4,
    ) -> None:
        if not interactions or any(width % 2 for width in interactions[:-1]):
            raise UncurseError(
                f"interactions={interactions}; pass at least one width, even where another layer follows"
            )
        widths = {"hidden": tuple(hidden), "interactions": tuple(interactions), "deviation": deviation}
        super().__init__(sizes, numbers, embedding, **widths)
        fields = len(self.sizes)
        self.taken = [width // 2 for width in interactions[:-1]] + [interactions[-1]]  # maps that go to the logit
        self.embeddings = nn.ModuleList(_table(size, embedding, deviation, normal=True) for size in self.sizes)
        self.linear = nn.ModuleList(_table(size, 1, deviation, normal=True) for size in self.sizes)
        taken_in = [fields, *self.taken[:-1]]
        self.maps = nn.ModuleList(nn.Linear(fields * k, n) for k, n in zip(taken_in, interactions, strict=True))
        self.hidden = nn.Sequential()
        inputs = fields * embedding + numbers
        for outputs in hidden:
            layer = nn.Linear(inputs, outputs)
            nn.init.normal_(layer.weight, 0, deviation)
            self.hidden.extend([layer, nn.ReLU()])
            inputs = outputs
        self.hidden_out = nn.Linear(inputs, 1, bias=False)
        self.maps_out = nn.Linear(sum(self.taken), 1, bias=False)
        self.linear_numbers = nn.Linear(numbers, 1, bias=False) if numbers else None
        if self.linear_numbers is not None:
            nn.init.normal_(self.linear_numbers.weight, 0, deviation)
        self.out = nn.Linear(1, 1)
        nn.init.ones_(self.out.weight).requires_grad_(False)
        nn.init.zeros_(self.out.bias)

    def forward(self, numbers: Tensor, codes: Tensor) -> Tensor:
        """Return the logits of rows."""
        vectors = self.embed(self.embeddings, codes)
        z = self.embed(self.linear, codes).sum(1)
        if self.linear_numbers is not None:
            z = z + self.linear_numbers(numbers)
        z = z + self.hidden_out(self.hidden(torch.cat([vectors.flatten(1), numbers], 1)))
        maps, taken = vectors, []
        for layer, count in zip(self.maps, self.taken, strict=True):
            products = (vectors.unsqueeze(2) * maps.unsqueeze(1)).flatten(1, 2)
            made = layer(products.transpose(1, 2)).relu().transpose(1, 2)
            maps = made[:, : made.shape[1] - count]
            taken.append(made[:, made.shape[1] - count :].sum(2))
        logits: Tensor = self.out(z + self.maps_out(torch.cat(taken, 1))).squeeze(1)
        return logits


def _table(size: int, width: int, spread: float, *, normal: bool = False) -> nn.Embedding:
    """An embedding drawn once; `nn.Embedding` alone would draw it twice."""
    weight = torch.empty(size, width)
    weight = weight.normal_(0, spread) if normal else weight.uniform_(-spread, spread)
    return nn.Embedding(size, width, _weight=weight)


def _network(widths: list[int], *, last_relu: bool) -> nn.Sequential:
    """Linear layers with a ReLU between them, initialized as in DLRM's paper."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        with warnings.catch_warnings():  # of a layer without inputs, where there are no numbers
            warnings.filterwarnings("ignore", "Initializing zero-element tensors")
            layer = nn.Linear(inputs, outputs, device="meta")  # without numbers: they are drawn once, here
        layer.weight = nn.Parameter(torch.empty(outputs, inputs).normal_(0, (2 / (inputs + outputs)) ** 0.5))
        layer.bias = nn.Parameter(torch.empty(outputs).normal_(0, outputs**-0.5))
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers if last_relu else layers[:-1])
