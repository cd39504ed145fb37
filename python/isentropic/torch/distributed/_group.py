"""The processes that have the parts of rows, and the exchanges between them."""

import hashlib
from typing import NamedTuple

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

from isentropic.torch.distributed._entries import signed

# The word that a failed rank sends in its first exchange; the key of every score is smaller.
_FAILED = 0x7FFF << 48

# torch 2.13 renamed the function.
_gather = getattr(functional, "all_gather_single", None) or functional.all_gather_tensor


class Traffic(NamedTuple):
    """The cost of the last call on this process: its rounds, and the bytes that this rank sent in them for each row."""

    rounds: int
    bytes_per_row: float


# The rounds, bytes and rows of the last call on this process.
cost = [0, 0, 1]
# Whether the current call of a function has exchanged anything yet.
begun = [False]
# The shapes on which all ranks have agreed: group, rows, n, dtype.
_agreed: set[tuple[object, ...]] = set()


def traffic():
    """Rounds and bytes of the last call of a function of this module, or of its backward, on this process."""
    rounds, told, rows = cost
    return Traffic(rounds, told / max(rows, 1))


def _difference(one, other):
    """The first argument that differs in two dicts of arguments by name: its name and both values; None if there is none."""
    for name in {**one, **other}:
        a, b = one.get(name), other.get(name)
        if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
            for row, (x, y) in enumerate(zip(a, b, strict=True)):
                if str(x) != str(y):  # NaN is NaN
                    return name, f"{x} in row {row}", y
        elif str(a) != str(b):
            return name, *("one for each row" if isinstance(of, tuple) else of for of in (a, b))
    return None


def _digest(arguments):
    """(a hash of the arguments that are not tensors, a hash of the tensors' bits, on their device)."""
    text, of_tensors = hashlib.blake2b(digest_size=8), 0
    for argument in arguments.values():
        text.update(b"rows" if isinstance(argument, torch.Tensor) else str(argument).encode())
        if isinstance(argument, torch.Tensor):
            bits = argument.contiguous().view(torch.int64).reshape(-1)
            weights = (2 * torch.arange(len(bits), device=bits.device) + 1) * signed(0x9E37_79B9_7F4A_7C15)  # odd
            of_tensors = 3 * of_tensors + ((bits ^ (bits >> 31)) * weights).sum()
    return int.from_bytes(text.digest(), "little", signed=True), of_tensors


class Group:
    """The ranks with one part each, and the extents of the parts."""

    def __init__(self, operation, group_name):
        self.operation, self.name, self.alone = operation, group_name, group_name == ""
        self.group = None if self.alone else dist.distributed_c10d._resolve_process_group(group_name)
        self.size = 1 if self.alone else self.group.size()
        self.rank = 0 if self.alone else self.group.rank()
        self.differ = False  # whether the ranks' arguments are not alike
        self.error = None  # what is wrong with this rank's arguments, told in the first round
        devices = [] if self.alone else [device.type for device in self.group._device_types]
        self.devices = devices or ["cpu"]

    def join(self, words, how):
        """The words of all parts: the largest, the sum, or gathered along a new first axis."""
        begun[0] = True
        cost[0] += 1
        cost[1] += 8 * words.numel()
        if self.alone:
            return words[None] if how == "gather" else words
        # The backend may not exchange what is in the memory of this device.
        told = words.contiguous() if words.device.type in self.devices else words.to(self.devices[0])
        try:
            if how == "gather":
                joined = functional.wait_tensor(_gather(told[None], 0, self.group))
            else:
                joined = functional.wait_tensor(functional.all_reduce(told, how, self.group))
            return joined.to(words.device)
        except RuntimeError as error:
            raise RuntimeError(
                f"isentropic.torch.distributed.{self.operation}: rank {self.rank} of {self.size} got no answer from the "
                f"others in round {cost[0]} ({self.operation}); a rank has died, stalls or calls another function: {error}"
            ) from error

    def join_first(self, words, how, checks):
        """As join; if it checks, an error of one rank is raised on all."""
        joined = self.join(words if self.error is None else torch.full_like(words, _FAILED), how)
        if checks and bool((joined >= _FAILED).any()):
            self.raise_first(self.error)
        return joined

    def objects(self, one):
        if self.alone:
            return [one]
        everyone = [None] * self.size
        dist.all_gather_object(everyone, one, self.group)
        return everyone

    def raise_first(self, error, arguments=None):
        """Raises the exception of the first rank that has one, on every rank, or one that names an argument of two ranks."""
        lists = {
            name: tuple(one.flatten().tolist()) if isinstance(one, torch.Tensor) else one
            for name, one in (arguments or {}).items()
        }
        told = self.objects((None if error is None else (type(error), str(error)), lists))
        for rank, (failed, _) in enumerate(told):
            if failed is not None:
                kind, text = failed
                if kind not in (ValueError, TypeError, IndexError, RuntimeError):
                    kind = RuntimeError
                raise kind(text if self.size == 1 else f"{text} (rank {rank})") from error
        for rank, (_, given) in enumerate(told):
            difference = _difference(told[0][1], given)
            if difference is not None:
                name, first, other = difference
                raise ValueError(
                    f"{self.operation}: all ranks must have the same {name}, got {first} on rank 0 and {other} on rank {rank}"
                )
        raise RuntimeError(f"{self.operation}: a rank has failed without a message")

    def extent(self, rows, cols, dtype, first, n, arguments, error=None):
        """(first, n), from all ranks unless they are known to agree. The arguments, by name, are those that all ranks share."""
        known = (self.name, rows, n, dtype)
        given = first >= 0 and n >= 0
        if error is None and given and known in _agreed:
            return first, n
        text, of_tensors = _digest(arguments)
        mine = torch.tensor([rows, cols, dtype, 0 if error is None else 1, first, n, text])
        if isinstance(of_tensors, torch.Tensor):
            mine = mine.to(of_tensors.device)
            mine[6] += of_tensors
        before = list(cost)
        told = self.join(mine, "gather").tolist()
        if given:  # done once for all calls of this kind
            cost[:] = before
        all_rows, counts, dtypes, failed, firsts, lengths, digests = zip(*told, strict=True)
        if any(failed):
            self.raise_first(error)
        if len(set(all_rows)) > 1:
            raise ValueError(f"{self.operation}: all ranks must have as many rows, got {', '.join(map(str, all_rows))}")
        if len(set(dtypes)) > 1:
            raise TypeError(f"{self.operation}: all ranks must have the same dtype")
        self.differ = len(set(digests)) > 1
        begins, whole = [sum(counts[:rank]) for rank in range(self.size)], sum(counts)
        # Every rank looks at what all gave, and all raise the same.
        for rank, (begin, count, has_first, has_n) in enumerate(zip(begins, counts, firsts, lengths, strict=True)):
            got = [f"first = {has_first}"] * (has_first not in (-1, begin)) + [f"n = {has_n}"] * (has_n not in (-1, whole))
            if got:
                raise ValueError(
                    f"{self.operation}: first and n must agree with the parts of all ranks: that of rank {rank} has {count} "
                    f"entries from entry {begin} of {whole}, got {' and '.join(got)}"
                )
        if given:
            _agreed.add(known)
        return begins[self.rank], whole


def start_counting():
    cost[:] = [0, 0, 1]
