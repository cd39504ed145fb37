import os
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

_Path = str | os.PathLike[str]

class Table(NamedTuple):
    array: NDArray[np.floating[Any]]
    columns: list[str]
    labels: list[str] | None

@overload
def read(
    path: _Path,
    *,
    key: str | None = None,
    labels: str | int | None = None,
    header: bool | None = None,
    columns: str | Sequence[str | int] | None = None,
    exclude: str | Sequence[str | int] | None = None,
    delimiter: str | None = None,
    missing: Literal["error", "nan", "skip"] = "error",
    format: str | None = None,
    names: Literal[False] = False,
) -> NDArray[np.floating[Any]]: ...
@overload
def read(
    path: _Path,
    *,
    key: str | None = None,
    labels: str | int | None = None,
    header: bool | None = None,
    columns: str | Sequence[str | int] | None = None,
    exclude: str | Sequence[str | int] | None = None,
    delimiter: str | None = None,
    missing: Literal["error", "nan", "skip"] = "error",
    format: str | None = None,
    names: Literal[True],
) -> Table: ...
def write(
    path: _Path,
    array: Any,
    *,
    columns: Sequence[str] | None = None,
    labels: Sequence[str] | None = None,
    key: str | None = None,
    format: str | None = None,
) -> None: ...
