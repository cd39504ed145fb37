"""The processes that have the parts of rows, and the exchanges between them."""

import hashlib
from typing import NamedTuple

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

import isentropic._core as _core

# The word that a failed rank sends instead of a maximum; the key of every score is smaller.
_FAILED = 0x7FFF << 48


def _in_order(bits):
    """The bits of numbers other than -0 as integers in the order of the numbers, and back. That of NaN is the largest, and
    smaller than _FAILED."""
    return np.where(bits >= 0, bits, bits ^ 0x7FFF_FFFF_FFFF_FFFF)


# torch 2.13 renamed the function.
_gather = getattr(functional, "all_gather_single", None) or functional.all_gather_tensor


class Traffic(NamedTuple):
    """The cost of the last call on this process: its rounds, and the bytes that this rank sent in them for each row."""

    rounds: int
    bytes_per_row: float


# Of the last call on this process: rounds, bytes, rows.
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
        if isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and a.shape == b.shape:
            for row, (x, y) in enumerate(zip(a.tolist(), b.tolist(), strict=True)):
                if str(x) != str(y):  # NaN is NaN
                    return name, f"{x} in row {row}", y
        elif str(a) != str(b):
            return name, *("one for each row" if isinstance(of, np.ndarray) else of for of in (a, b))
    return None


class Group:
    """The ranks with one part each, and the extents of the parts."""

    def __init__(self, name, group_name, what):
        self.what, self.name = what, group_name
        self.alone = group_name == ""
        self.group = None if self.alone else dist.distributed_c10d._resolve_process_group(group_name)
        self.size = 1 if self.alone else self.group.size()
        self.rank = 0 if self.alone else self.group.rank()
        self.operation = name
        self.differ = False  # whether the ranks' arguments are not alike
        self.error = None  # what is wrong with this rank's arguments, told in the first round
        # NCCL cannot exchange words in the memory of the host.
        self.device = "cpu"
        if not self.alone and "cpu" not in {device.type for device in self.group._device_types}:
            self.device = next(iter(self.group._device_types)).type

    def join(self, words, join, rows):
        """The words of all parts, as one array of int64."""
        begun[0] = True
        cost[0] += 1
        cost[1] += words.nbytes
        if self.alone:
            return words
        told = torch.from_numpy(words).to(self.device)
        try:
            if join == "gather":
                joined = _gather(told, 0, self.group)
            else:
                joined = functional.all_reduce(told, {"maximum": "max", "sum": "sum"}[join], self.group)
            return functional.wait_tensor(joined).cpu().numpy()
        except RuntimeError as error:
            raise RuntimeError(
                f"isentropic.torch.distributed.{self.operation}: rank {self.rank} of {self.size} got no answer of others in "
                f"round {cost[0]} ({self.what}); a rank has died, stalls or calls another function: {error}"
            ) from error

    def objects(self, one):
        if self.alone:
            return [one]
        everyone = [None] * self.size
        dist.all_gather_object(everyone, one, self.group)
        return everyone

    def raise_first(self, error, arguments=None):
        """Raises the exception of the first rank that has one, on every rank, or one that names an argument of two ranks."""
        told = self.objects((None if error is None else (type(error), str(error)), arguments or {}))
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
        digest = hashlib.blake2b(digest_size=8)
        for argument in arguments.values():
            digest.update(argument.tobytes() if isinstance(argument, np.ndarray) else str(argument).encode())
        digest = int.from_bytes(digest.digest(), "little", signed=True)
        mine = np.array([rows, cols, dtype, 0 if error is None else 1, first, n, digest], np.int64)
        before = list(cost)
        told = self.join(mine, "gather", 1).reshape(-1, 7)
        if given:  # done once for all calls of this kind
            cost[:] = before
        if told[:, 3].any():
            self.raise_first(error)
        if (told[:, 0] != told[0, 0]).any():
            counts = ", ".join(str(count) for count in told[:, 0])
            raise ValueError(f"{self.operation}: all ranks must have as many rows, got {counts}")
        if (told[:, 2] != told[0, 2]).any():
            raise TypeError(f"{self.operation}: all ranks must have the same dtype")
        self.differ = bool((told[:, 6] != told[0, 6]).any())
        ends, whole = np.cumsum(told[:, 1]), int(told[:, 1].sum())
        begins = ends - told[:, 1]
        # Every rank looks at what all gave, and all raise the same.
        for rank, (begin, count, has_first, has_n) in enumerate(zip(begins, *told[:, [1, 4, 5]].T, strict=True)):
            got = [f"first = {has_first}"] * (has_first not in (-1, begin)) + [f"n = {has_n}"] * (has_n not in (-1, whole))
            if got:
                raise ValueError(
                    f"{self.operation}: first and n must agree with the parts of all ranks: that of rank {rank} has {count} "
                    f"entries from entry {begin} of {whole}, got {' and '.join(got)}"
                )
        if given:
            _agreed.add(known)
        return int(begins[self.rank]), whole

    def run_together(self, parts, rows):
        """Questions and answers of several parts in the same rounds, for rows with their own parameters."""
        begun = False
        while True:
            asked = [part.question() for part in parts]
            if all(join == "none" for join, _ in asked):
                return parts
            for how in ("maximum", "sum", "gather"):
                told, those = [], [i for i, (join, _) in enumerate(asked) if join == how]
                for i in those:
                    told.append(np.zeros(rows[i] * asked[i][1], np.int64))
                    parts[i].answer(told[-1])
                if not told:
                    continue
                # A round is one exchange for each way of joining.
                joined = np.ascontiguousarray(self.join(np.concatenate(told), how, 1)).reshape(-1, sum(map(len, told)))
                if not begun and how != "sum" and (joined >= _FAILED).any():
                    self.raise_first(None)
                at = 0
                for i, words in zip(those, told, strict=True):
                    parts[i].take(np.ascontiguousarray(joined[:, at : at + len(words)]).reshape(-1))
                    at += len(words)
            begun = True  # words of later rounds may be as large

    def run(self, part, rows):
        """Questions and answers until the part has no further question."""
        asked = part.question()
        begun = False
        while asked[0] != "none":
            join, words = asked
            told = np.zeros(rows * words, np.int64)
            part.answer(told)
            if self.error is not None and not begun and rows > 0 and words > 0:
                told[:] = _FAILED
            joined = np.ascontiguousarray(self.join(told, join, rows)).reshape(-1)
            if not begun and join != "sum" and joined.size and (joined >= _FAILED).any():
                self.raise_first(self.error)
            begun = True
            part.take(joined)
            asked = part.question()
        return part

    def largest(self, rows):
        """The largest number of each row, NaN if there is one."""
        top = np.max(rows, axis=1, initial=-np.inf).astype(np.float64) + 0.0  # no -0
        top = np.where(np.isnan(top), np.nan, top)  # one bit pattern of NaN
        return _in_order(self.join(_in_order(top.view(np.int64)), "maximum", len(rows))).view(np.float64)[:, None]

    def sums(self, terms, first, n, bounded=False):
        """The exact sum of each row of each array of terms. If bounded, for terms that are not negative, it takes one round in
        place of two; only if there are terms above 2**40 or so, it takes two more. NaN counts as +inf there."""
        stacked = np.ascontiguousarray(np.concatenate(terms), np.float64)
        totals = self._sums(stacked, first, n, bounded)
        if bounded and (beyond := np.isinf(totals[:, 0])).any():
            more = self._sums(np.ascontiguousarray(stacked[beyond]), first, n, False)
            totals[beyond] = np.where(np.isnan(more), np.inf, more)
        return totals.reshape(len(terms), -1, 1)

    def _sums(self, rows, first, n, bounded):
        return values_of(self.run(_core.part_of_sum(bounded, rows, first, n), len(rows)), len(rows))


def values_of(part, rows):
    values = np.zeros((rows, part.value_count()))
    part.values(values)
    return values


def start_counting():
    cost[:] = [0, 0, 1]
