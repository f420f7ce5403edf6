"""What a step of R replicas side by side costs on a GPU, against one, and against an eager loop.

    python -m lab.benchmarks.replicas [--model dlrm|xdeepfm] [--replicas 1,2,8,80]

On a CPU it runs too, small, to show that it works; its figures there mean nothing.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import torch
from torch import nn

from uncurse.deep.training import Plan, Run
from uncurse_lab.deep.click_stack import stack_models
from uncurse_lab.deep.clicks import Clicks
from uncurse_lab.deep.models import DLRM, XDeepFM

#: About 8.3 million embedding rows in 26 fields, the shape of Criteo's first 15 million lines; and Avazu's 22.
CRITEO = (1460, 583, 2_000_000, 700_000, 305, 24, 12517, 633, 3, 60_000, 5683, 1_900_000, 3194)
CRITEO += (27, 12_000, 1_600_000, 10, 4652, 2173, 4, 1_850_000, 18, 15, 100_000, 90, 50_000)  # type: ignore[assignment]
AVAZU = (24, 7, 7, 4000, 6000, 26, 7000, 500, 36, 1_000_000, 2_500_000, 7500, 5, 4, 2500, 8, 9, 430, 4, 68, 170, 60)


def data(sizes: tuple[int, ...], dense: int, rows: int, device: torch.device) -> Clicks:
    """Rows without meaning; popular values come more often, as in life."""
    g = torch.Generator(device).manual_seed(0)
    u = torch.rand(rows, len(sizes), generator=g, device=device)
    top = torch.tensor(sizes, device=device)
    codes = (top**u).long().clamp_(max=top - 1).to(torch.int32)
    numbers = torch.rand(rows, dense, generator=g, device=device) * 4
    label = (torch.rand(rows, generator=g, device=device) < 0.25).to(torch.uint8)
    return Clicks(numbers, codes, label, sizes)


def time_steps(model: Any, clicks: Clicks, plan: Plan, steps: int, repeats: int = 5) -> float:
    """Seconds a step, the best of some rounds."""
    device = clicks.codes.device
    run = Run(lambda device: stack_models(model, clicks, plan.seeds, device), clicks, plan, device=device)
    run.shuffle(0)
    for _ in range(5):
        run.advance()
    best = float("inf")
    for _ in range(repeats):
        run.place.zero_()
        wait(device)
        start = time.perf_counter()
        for _ in range(steps):
            run.advance()
        wait(device)
        best = min(best, (time.perf_counter() - start) / steps)
    return best


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def time_reference(clicks: Clicks, batch: int, steps: int) -> float:
    """One model in an eager loop: batches copied from the host, a sparse SGD step, the loss read now and then."""
    device = clicks.codes.device
    model = DLRM(clicks.sizes, clicks.dense.shape[1]).to(device)
    for table in model.embeddings:
        table.sparse = True  # type: ignore[assignment]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    host = Clicks(clicks.dense.cpu(), clicks.codes.cpu(), clicks.label.cpu(), clicks.sizes)
    best = float("inf")
    for _ in range(3):
        wait(device)
        start = time.perf_counter()
        for i in range(steps):
            part = host.take(slice(i * batch, (i + 1) * batch)).to(device)
            z = model(part.dense, part.codes.long())
            loss = nn.functional.binary_cross_entropy_with_logits(z, part.label.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        wait(device)
        best = min(best, (time.perf_counter() - start) / steps)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=("dlrm", "xdeepfm"), default="dlrm")
    parser.add_argument("--replicas", default="1,2,8,80")
    parser.add_argument("--steps", type=int, default=500)
    given = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    cuda = device.type == "cuda"
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    steps = given.steps if cuda else 3
    sizes, dense, batch = (CRITEO, 13, 128) if given.model == "dlrm" else (AVAZU, 0, 256)
    model, optimizer, rate = (DLRM, "sgd", 0.1) if given.model == "dlrm" else (XDeepFM, "adam", 1e-3)
    if not cuda:
        sizes = tuple(min(size, 1000) for size in sizes)
    clicks = data(sizes, dense, batch * max(steps, 4000 if cuda else 8), device)
    print(f"{given.model}: batch {batch}, {sum(sizes):,} embedding rows a model, {device}")
    times = {}
    for replicas in map(int, given.replicas.split(",")):
        times[replicas] = time_steps(model, clicks, Plan(replicas, 1, batch, optimizer, rate), steps)
        print(f"R={replicas:<3} {1e6 * times[replicas]:>9.1f} us a step", flush=True)
    if 1 in times and 2 in times:
        print(f"R=2 costs {times[2] / times[1]:.3f} of R=1")
    if given.model == "dlrm":
        eager = time_reference(clicks, batch, 100 if cuda else 3)
        print(f"eager loop, one model: {1e6 * eager:.0f} us a step, {eager / times[min(times)]:.1f} of R={min(times)}")


if __name__ == "__main__":
    main()
