"""What a step of R replicas side by side costs on a GPU, against one, against an eager loop, against memory.

    python -m lab.benchmarks.replicas [--model dlrm|xdeepfm] [--replicas 1,2,8,80] [--profile] [--json FILE]

On a CPU it runs too, small, to show that it works; its figures there mean nothing.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import nn

from uncurse.deep.plan import Plan
from uncurse.deep.run import Run
from uncurse.deep.stack import stack_modules
from uncurse_lab.deep import click_stack as stack_room
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


def make_run(model: Any, clicks: Clicks, plan: Plan) -> Run:
    device = clicks.codes.device
    stack = stack_modules(model, clicks, plan.seeds, device)
    run = Run(stack, plan, [clicks.dense, clicks.codes], clicks.label, graph=device.type == "cuda")
    run.shuffle(0)
    return run


def time_steps(run: Run, steps: int, repeats: int = 5) -> float:
    """Seconds a step, the best of some rounds."""
    cuda = run.stack.device.type == "cuda"
    with run.plan.settings(run.stack.device):
        for _ in range(5):
            run.advance()
        best = float("inf")
        for _ in range(repeats):
            run.place.zero_()
            if cuda:
                torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(steps):
                run.advance()
            if cuda:
                torch.cuda.synchronize()
            best = min(best, (time.perf_counter() - start) / steps)
    return best


def time_reference(clicks: Clicks, batch: int, steps: int) -> float:
    """One model in an eager loop: batches copied from the host, a sparse SGD step, the loss read now and then."""
    device = clicks.codes.device
    model = DLRM(clicks.sizes, clicks.dense.shape[1]).to(device)
    for table in model.embeddings:
        table.sparse = True  # type: ignore[assignment]
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    host = Clicks(clicks.dense.cpu(), clicks.codes.cpu(), clicks.label.cpu(), clicks.sizes)
    best = float("inf")
    for _ in range(3):
        if device.type == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        for i in range(steps):
            part = host.take(slice(i * batch, (i + 1) * batch)).to(device)
            z = model(part.dense, part.codes.long())
            loss = nn.functional.binary_cross_entropy_with_logits(z, part.label.float())
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        if device.type == "cuda":
            torch.cuda.synchronize()
        best = min(best, (time.perf_counter() - start) / steps)
    return best


def bandwidth(device: torch.device) -> float:
    """Bytes a second of a large copy, read and written."""
    x = torch.empty(1 << 30, dtype=torch.uint8, device=device)
    y = torch.empty_like(x)
    best = float("inf")
    for _ in range(10):
        torch.cuda.synchronize()
        start = time.perf_counter()
        y.copy_(x)
        torch.cuda.synchronize()
        best = min(best, time.perf_counter() - start)
    return 2 * len(x) / best


def floor_bytes(run: Run) -> int:
    """Weights read and written once, looked-up rows read and written once, activations written and read once."""
    stack, batch = run.stack, run.plan.batch_size
    weights = sum(w.numel() for w in stack.weights.values())
    rows = stack.replicas * batch * len(stack.sizes) * stack.table.shape[1]
    widths = [w.shape[-1] for name, w in stack.weights.items() if name.endswith("weight")]
    activations = stack.replicas * batch * sum(widths)
    return 4 * 2 * (weights + rows + activations)


def check(model: Any, optimiser: str, clicks: Clicks) -> str:
    """One float32 step of three replicas with the fused kernels and without: how far apart are all numbers after it.

    One step only: after more of them a unit of a ReLU that is zero up to rounding sends two runs apart.
    """
    plan = Plan(3, 1, 128, optimiser, 0.1 if optimiser == "sgd" else 1e-3, precision="float32")
    kept = []
    for kernels in (True, False):
        with patch.object(stack_room, "_kernels", stack_room._kernels if kernels else lambda: None):
            run = make_run(model, clicks, plan)
            before = {name: value.detach().clone() for name, value in run.stack.state().items()}
            with plan.settings(run.stack.device):
                run.next()
            kept.append({name: value.detach() - before[name] for name, value in run.stack.state().items()})
    worst = max(float((kept[0][n] - kept[1][n]).abs().max() / kept[1][n].abs().max().clamp_min(1e-30)) for n in before)
    if worst > 1e-3:
        raise SystemExit(f"the fused kernels differ from plain PyTorch by {worst:.1e} of the largest change")
    return f"kernels against plain PyTorch, one step: changes of all weights alike to {worst:.1e} of the largest change"


def profile(run: Run) -> str:
    """Where the time of a step goes, kernel by kernel."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as record

    with run.plan.settings(run.stack.device):
        for _ in range(3):
            run.next()
        with record(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as p:
            for _ in range(5):
                run.next()
            torch.cuda.synchronize()
    kernels = [e for e in p.key_averages() if e.self_device_time_total > 0 and e.device_type.name == "CUDA"]
    kernels.sort(key=lambda e: -e.self_device_time_total)
    lines = [f"{e.self_device_time_total / 5:>9.1f} us {e.count / 5:>6.1f} x  {e.key[:90]}" for e in kernels[:28]]
    total = sum(e.self_device_time_total for e in kernels) / 5
    return "\n".join([*lines, f"{total:>9.1f} us in {sum(e.count for e in kernels) / 5:.0f} kernels"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=("dlrm", "xdeepfm"), default="dlrm")
    parser.add_argument("--replicas", default="1,2,8,80")
    parser.add_argument("--precision", default="tf32")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--check", action="store_true", help="compare the fused kernels with plain PyTorch")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--no-reference", action="store_true")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    cuda = device.type == "cuda"
    steps = given.steps if cuda else 3
    sizes, dense, batch = (CRITEO, 13, 128) if given.model == "dlrm" else (AVAZU, 0, 256)
    model, optimiser, rate = (DLRM, "sgd", 0.1) if given.model == "dlrm" else (XDeepFM, "adam", 1e-3)
    if not cuda:
        sizes = tuple(min(s, 1000) for s in sizes)
    clicks = data(sizes, dense, batch * max(steps, 4000 if cuda else 8), device)
    print(f"{given.model}: batch {batch}, {sum(sizes):,} embedding rows a model, {given.precision}, {device}")
    if given.check and cuda:
        small = tuple(min(s, 2000) for s in sizes)
        print(check(model, optimiser, data(small, dense, 1280, device)), flush=True)
    found: dict[str, Any] = {"model": given.model, "precision": given.precision, "step_us": {}}
    speed = bandwidth(device) if cuda else 0.0
    for replicas in map(int, given.replicas.split(",")):
        plan = Plan(replicas, 1, batch, optimiser, rate, precision=given.precision)
        run = make_run(model, clicks, plan)
        seconds = time_steps(run, steps)
        found["step_us"][replicas] = 1e6 * seconds
        line = f"R={replicas:<3} {1e6 * seconds:>9.1f} us a step"
        if cuda:
            line += f", floor by memory {1e6 * floor_bytes(run) / speed:>7.1f} us"
        print(line, flush=True)
        if given.profile and cuda:
            print(profile(run), flush=True)
        del run
    times = found["step_us"]
    if 1 in times and 2 in times:
        print(f"R=2 costs {times[2] / times[1]:.3f} of R=1")
    if given.model == "dlrm" and not given.no_reference:
        found["reference_us"] = 1e6 * time_reference(clicks, batch, 100 if cuda else 3)
        found["ratio"] = found["reference_us"] / times[min(times)]
        print(f"eager loop, one model: {found['reference_us']:.0f} us a step, {found['ratio']:.1f} of R={min(times)}")
    if cuda:
        found["bandwidth"] = speed
        print(f"copy bandwidth {speed / 1e12:.2f} TB/s on {torch.cuda.get_device_name()}")
    if given.json:
        given.json.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
