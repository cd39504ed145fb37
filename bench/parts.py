"""Rows split over ranks against gathering them first, the loss also against torch's loss_parallel: bytes, rounds, time on gloo.

python bench/parts.py [RANKS ...]
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

ROWS, N = 32, 128256


def work(rank, size, port):
    torch.set_num_threads(1)
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=size, timeout=timedelta(seconds=300))
    torch.manual_seed(0)
    whole = 3 * torch.randn(ROWS, N)
    target = torch.randint(N, (ROWS,))
    cuts = [i * N // size for i in range(size + 1)]
    first = cuts[rank]
    x = whole[:, first : cuts[rank + 1]].contiguous()
    where = {"first": first, "n": N}

    def gathered():
        parts = [torch.empty(ROWS, cuts[i + 1] - cuts[i]) for i in range(size)]
        dist.all_gather(parts, x)
        return torch.cat(parts, -1)

    mesh = DeviceMesh("cpu", list(range(size)))
    dtensor = DTensor.from_local(x, mesh, [Shard(1)], run_check=False, shape=torch.Size((ROWS, N)), stride=(N, 1))

    def parallel():
        with loss_parallel():
            return torch.nn.functional.cross_entropy(dtensor, target, reduction="none").to_local()

    tasks = {
        "softmax_loss": (lambda: D.softmax_loss(x, target, **where), lambda: et.softmax_loss(gathered(), target)),
        "softmax_loss; loss_parallel": (lambda: D.softmax_loss(x, target, **where), parallel),
        "sparsemax": (lambda: D.sparsemax(x, **where), lambda: et.sparsemax(gathered())),
        "entropy_normalize": (
            lambda: D.entropy_normalize(x, entropy=2.0, **where),
            lambda: et.entropy_normalize(gathered(), entropy=2.0),
        ),
        "top_p_softmax": (lambda: D.top_p_softmax(x, p=0.9, **where), lambda: et.top_p_softmax(gathered(), p=0.9)),
        "sample": (lambda: D.sample(x, seed=1, **where), lambda: et_sample(gathered())),
    }
    for name, pair in tasks.items():
        times = []
        for task in pair:
            task()
            spent = []
            for _ in range(7):
                dist.barrier()
                start = time.perf_counter()
                task()
                spent.append(time.perf_counter() - start)
            times.append(1e3 * statistics.median(spent))
            if task is pair[0]:
                cost = D.traffic()
        if rank == 0:
            print(
                f"| {name} | {size} | {cost.rounds} | {cost.bytes_per_row:.0f} | {4 * N // size} "
                f"| {times[0]:.1f} | {times[1]:.1f} |",
                flush=True,
            )
    dist.barrier()
    os._exit(0)


def et_sample(x):
    import isentropic

    return isentropic.sample(x, seed=1)


if __name__ == "__main__":
    print("| operation | ranks | rounds | bytes per row and rank | bytes of the gather | ms | ms of the other |")
    print("|---|---|---|---|---|---|---|")
    for size in map(int, sys.argv[1:] or ["1", "2", "4", "8"]):
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
        processes = [multiprocessing.get_context("spawn").Process(target=work, args=(r, size, port)) for r in range(size)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
