"""Fused steps for a GPU, in Triton: one pass over memory. All of them have a plain counterpart beside their caller."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor


def bias_relu(y: Tensor, b: Tensor, relu: bool) -> None:
    """y ← max(y + b, 0), in place; y is (R, B, N), b (R, 1, N)."""
    r, rows, n = y.shape
    block = min(128, triton.next_power_of_2(n))
    grid = (r, triton.cdiv(rows, 32), triton.cdiv(n, block))
    _bias_relu[grid](y, b, rows, n, relu, 32, block, num_warps=4)


@triton.jit
def _bias_relu(y_ptr, b_ptr, rows, n, RELU: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    r = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    j = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    inside = (i < rows)[:, None] & (j < n)[None, :]
    at = y_ptr + (r * rows + i[:, None]) * n + j[None, :]
    y = tl.load(at, mask=inside, other=0.0).to(tl.float32)
    y += tl.load(b_ptr + r * n + j, mask=j < n, other=0.0)[None, :]
    if RELU:
        y = tl.maximum(y, 0.0)
    tl.store(at, y, mask=inside)


def relu_gradient(g: Tensor, y: Tensor | None, b: Tensor, rate: float) -> Tensor:
    """g where y > 0, else 0; and b ← b − rate · its sum over the batch."""
    g = g.contiguous()
    r, rows, n = g.shape
    out = g if y is None else torch.empty_like(g)
    block = min(32, triton.next_power_of_2(n))
    _relu_gradient[(r, triton.cdiv(n, block))](
        g, g if y is None else y, out, b, rows, n, rate, y is not None, 64, block, num_warps=4
    )
    return out


@triton.jit
def _relu_gradient(  # type: ignore[no-untyped-def]
    g_ptr, y_ptr, out_ptr, b_ptr, rows, n, rate, RELU: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    r = tl.program_id(0).to(tl.int64)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([ROWS, BLOCK], dtype=tl.float32)
    for start in range(0, rows, ROWS):
        i = start + tl.arange(0, ROWS)
        inside = (i < rows)[:, None] & (j < n)[None, :]
        at = (r * rows + i[:, None]) * n + j[None, :]
        g = tl.load(g_ptr + at, mask=inside, other=0.0)
        if RELU:
            y = tl.load(y_ptr + at, mask=inside, other=0.0)
            g = tl.where(y > 0, g, 0.0)
            tl.store(out_ptr + at, g, mask=inside)
        total += g.to(tl.float32)
    at_b = b_ptr + r * n + j
    b = tl.load(at_b, mask=j < n, other=0.0)
    tl.store(at_b, b - rate * tl.sum(total, 0), mask=j < n)


class SgdInteract(torch.autograd.Function):
    """x, the dot products of every two vectors, and zeros, side by side; the backward pass is the rows' SGD step."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, table: Tensor, index: Tensor, width: int, rate: float) -> Tensor:
        """(R, B, d) and places in the table (R, B, F) to (R, B, width); keeps the vectors of before the step."""
        r, rows, f = index.shape
        d = table.shape[1]
        out = torch.empty(r, rows, width, device=x.device, dtype=x.dtype)
        vectors = torch.empty(r * rows, f + 1, d, device=x.device, dtype=x.dtype)
        size = triton.next_power_of_2(f + 1)
        _interact[(r * rows,)](x.contiguous(), table, index, vectors, out, f, width, d, size, _exact(), num_warps=1)
        ctx.save_for_backward(vectors, index)
        ctx.table, ctx.rate = table, rate
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradient of x, (R, B, d); rows of the table get −rate · theirs."""
        (g,) = gradients
        vectors, index = ctx.saved_tensors
        r, rows, f = index.shape
        d = ctx.table.shape[1]
        gx = torch.empty(r, rows, d, device=g.device, dtype=g.dtype)
        size = triton.next_power_of_2(f + 1)
        _interact_gradient[(r * rows,)](
            g.contiguous(), vectors, ctx.table, index, gx, f, g.shape[2], ctx.rate, d, size, _exact(), num_warps=1
        )
        return gx, None, None, None, None


@triton.jit
def _interact(  # type: ignore[no-untyped-def]
    x_ptr, table_ptr, index_ptr, t_ptr, out_ptr, f, width, D: tl.constexpr, P: tl.constexpr, EXACT: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, P)
    j = tl.arange(0, P)
    d = tl.arange(0, D)
    looked = (i > 0) & (i <= f)
    index = tl.load(index_ptr + row * f + i - 1, mask=looked, other=0)
    rows = tl.load(table_ptr + index[:, None] * D + d[None, :], mask=looked[:, None], other=0.0)
    x = tl.load(x_ptr + row * D + d).to(tl.float32)
    t = tl.where((i == 0)[:, None], x[None, :], rows)
    tl.store(t_ptr + (row * (f + 1) + i[:, None]) * D + d[None, :], t, mask=(i <= f)[:, None])
    products = tl.dot(t, tl.trans(t), input_precision=EXACT)
    place = D + i[:, None] * (i[:, None] - 1) // 2 + j[None, :]
    start = out_ptr + row * width
    tl.store(start + place, products, mask=(i[:, None] > j[None, :]) & (i <= f)[:, None])
    tl.store(start + d, x)
    rest = D + f * (f + 1) // 2 + tl.arange(0, 8)
    tl.store(start + rest, tl.zeros([8], dtype=tl.float32), mask=rest < width)


@triton.jit
def _interact_gradient(  # type: ignore[no-untyped-def]
    g_ptr, t_ptr, table_ptr, index_ptr, gx_ptr, f, width, rate, D: tl.constexpr, P: tl.constexpr, EXACT: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, P)
    j = tl.arange(0, P)
    d = tl.arange(0, D)
    high = tl.maximum(i[:, None], j[None, :])
    low = tl.minimum(i[:, None], j[None, :])
    start = g_ptr + row * width
    # d(tᵢ·tⱼ) gives tⱼ to i and tᵢ to j: a symmetric matrix times t.
    both = tl.load(start + D + high * (high - 1) // 2 + low, mask=(high > low) & (high <= f), other=0.0)
    t = tl.load(t_ptr + (row * (f + 1) + i[:, None]) * D + d[None, :], mask=(i <= f)[:, None], other=0.0)
    gt = tl.dot(both.to(tl.float32), t.to(tl.float32), input_precision=EXACT)
    gx = tl.sum(tl.where((i == 0)[:, None], gt, 0.0), 0) + tl.load(start + d).to(tl.float32)
    tl.store(gx_ptr + row * D + d, gx)
    looked = (i > 0) & (i <= f)
    index = tl.load(index_ptr + row * f + i - 1, mask=looked, other=0)
    at = table_ptr + index[:, None] * D + d[None, :]
    tl.atomic_add(at, -rate * gt, mask=looked[:, None] & (d >= 0)[None, :], sem="relaxed")


class Products(torch.autograd.Function):
    """Every field times every map, element by element, (R, F, N) and (R, H, N) to (R, F · H, N): most of a step."""

    @staticmethod
    def forward(ctx: Any, fields: Tensor, maps: Tensor) -> Tensor:
        """Return the products, (R, F · H, N)."""
        fields, maps = fields.contiguous(), maps.contiguous()
        ctx.save_for_backward(fields, maps)
        (r, f, n), h = fields.shape, maps.shape[1]
        out = torch.empty(r, f * h, n, device=fields.device, dtype=fields.dtype)
        grid = (r, triton.cdiv(n, 128), triton.cdiv(h, 16))
        _products[grid](fields, maps, out, f, h, n, triton.next_power_of_2(f), 16, 128)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of fields and maps, in one pass over that of the products."""
        fields, maps = ctx.saved_tensors
        (r, f, n), h = fields.shape, maps.shape[1]
        g, g_fields, g_maps = gradients[0].contiguous(), torch.empty_like(fields), torch.empty_like(maps)
        _products_gradient[r, triton.cdiv(n, 64)](
            g, fields, maps, g_fields, g_maps, f, h, n, triton.next_power_of_2(f), 64, num_warps=4
        )
        return g_fields, g_maps


@triton.jit
def _products(  # type: ignore[no-untyped-def]
    fields_ptr, maps_ptr, out_ptr, f, h, n, F: tl.constexpr, STEP: tl.constexpr, BLOCK: tl.constexpr
):
    r = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, F)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = (i < f)[:, None] & (j < n)[None, :]
    fields = tl.load(fields_ptr + (r * f + i[:, None]) * n + j[None, :], mask=inside, other=0.0)
    first = tl.program_id(2) * STEP
    for k in range(first, tl.minimum(first + STEP, h)):
        row = tl.load(maps_ptr + (r * h + k) * n + j, mask=j < n, other=0.0)
        tl.store(out_ptr + ((r * f + i[:, None]) * h + k) * n + j[None, :], fields * row[None, :], mask=inside)


@triton.jit
def _products_gradient(  # type: ignore[no-untyped-def]
    g_ptr, fields_ptr, maps_ptr, g_fields_ptr, g_maps_ptr, f, h, n, F: tl.constexpr, BLOCK: tl.constexpr
):
    r = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, F)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = (i < f)[:, None] & (j < n)[None, :]
    at = (r * f + i[:, None]) * n + j[None, :]
    fields = tl.load(fields_ptr + at, mask=inside, other=0.0).to(tl.float32)
    total = tl.zeros([F, BLOCK], dtype=tl.float32)
    for k in range(h):
        row = (r * h + k) * n + j
        maps = tl.load(maps_ptr + row, mask=j < n, other=0.0).to(tl.float32)
        g = tl.load(g_ptr + ((r * f + i[:, None]) * h + k) * n + j[None, :], mask=inside, other=0.0).to(tl.float32)
        total += g * maps[None, :]
        tl.store(g_maps_ptr + row, tl.sum(g * fields, 0), mask=j < n)
    tl.store(g_fields_ptr + at, total, mask=inside)


def fits(fields: int, width: int) -> bool:
    """Whether the interaction kernels take this shape."""
    return width in (16, 32, 64) and 15 <= fields < 64


def _exact() -> Any:
    """As precise as the matrix products beside it."""
    return "tf32" if torch.backends.cuda.matmul.fp32_precision == "tf32" else "ieee"
