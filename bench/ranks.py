"""Steps (forward and backward) of rows over two ranks of one thread each, 64 x 128256 float32, beside torch's loss_parallel,
and beside the local call on half of the rows: both in turn, the least of nine with the median in brackets.

python bench/ranks.py [NAME ...]
"""

import os
import socket
import statistics
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.parallel import loss_parallel

import isentropic.torch as et
import isentropic.torch.distributed as D

ROWS, N, RANKS = 64, 128256, 2
MUSTS = {"softmax_loss": 1.3, "entropy": 1.5, "token_statistics": 1.5, "sparsemax": 4, "entmax": 5, "entropy_normalize": 7}
MUSTS |= {"top_k_softmax": 4}


def steps(rank):
    """{name: (the step on parts, the other)}."""
    torch.manual_seed(0)
    whole, g, target = 3 * torch.randn(ROWS, N), torch.randn(ROWS, N), torch.randint(N, (ROWS,))
    cols, rows = slice(rank * N // RANKS, (rank + 1) * N // RANKS), slice(0, ROWS // RANKS)
    x, own = whole[:, cols].contiguous(), whole[rows].contiguous()
    part_g, own_g = g[:, cols].contiguous(), g[rows].contiguous()
    where, mesh = {"first": cols.start, "n": N}, DeviceMesh("cpu", list(range(RANKS)))

    def step(function, x, g=None):
        x = x.detach().requires_grad_()
        y = function(x)
        y.backward(torch.ones_like(y) if g is None else g)

    def parallel():
        part = x.detach().requires_grad_()
        with loss_parallel():
            d = DTensor.from_local(part, mesh, [Shard(1)], run_check=False, shape=torch.Size((ROWS, N)), stride=(N, 1))
            torch.nn.functional.cross_entropy(d, target, reduction="none").sum().to_local().backward()

    def token_statistics(x):
        found = D.token_statistics(x, target, **where)
        return found.logprob + found.entropy

    tasks = {
        "softmax_loss": (lambda: step(lambda x: D.softmax_loss(x, target, **where), x), parallel),
        "entropy": (lambda: step(lambda x: D.entropy(x, **where), x), parallel),
        "token_statistics": (lambda: step(token_statistics, x), parallel),
    }
    maps = {"softmax": {}, "sparsemax": {}, "entmax": {}, "entropy_normalize": {"entropy": 2.0}, "top_k_softmax": {"k": 50}}
    for name, params in maps.items():
        tasks[name] = (
            lambda name=name, params=params: step(lambda x: getattr(D, name)(x, **params, **where), x, part_g),
            lambda name=name, params=params: step(lambda x: getattr(et, name)(x, **params), own, own_g),
        )
    return tasks


def work(rank, port, names):
    torch.set_num_threads(1)
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=RANKS, timeout=timedelta(seconds=300))
    for name, pair in steps(rank).items():
        if names and name not in names:
            continue
        spent = [], []
        for run in range(10):
            for task, times in zip(pair, spent, strict=True):
                dist.barrier()
                start = time.perf_counter()
                task()
                dist.barrier()
                times += [1e3 * (time.perf_counter() - start)] * (run > 0)
        if rank == 0:
            (ours, mid), (other, other_mid) = ((min(times), statistics.median(times)) for times in spent)
            print(
                f"| {name} | {ours:.0f} ({mid:.0f}) | {other:.0f} ({other_mid:.0f}) "
                f"| {ours / other:.2f} ({mid / other_mid:.2f}) | {MUSTS.get(name, '')} |",
                flush=True,
            )
    dist.barrier()
    os._exit(0)


if __name__ == "__main__":
    print("| step | ms on parts | ms of the other | ratio | must |")
    print("|---|---|---|---|---|")
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    spawn = multiprocessing.get_context("spawn").Process
    processes = [spawn(target=work, args=(rank, port, sys.argv[1:])) for rank in range(RANKS)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
