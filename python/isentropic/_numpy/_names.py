"""Names of entries and rows: those that two arrays of one call have in common must stand at the same places in both."""


def check_order(function, first, second):
    """Refuses two arrays, each (argument, array, its axis of entries counted from the end), if a name that both have along this
    axis stands at another place in the second. Numbers are paired by place, so nothing else would tell.

    Names are the columns or the index of pandas, unless they are its default numbers.
    """
    own = _index(first)
    others = None if own is None else _index(second)
    if others is None or own.equals(others):
        return
    places = {name: place for place, name in enumerate(own)}
    for place, name in enumerate(others):
        at = places.get(name, place)
        if at != place:
            argument, x, _ = second
            order = f"{first[0]}.{'columns' if _has_columns(first) else 'index'}"
            chosen = f".reindex({order})" if x.ndim == 1 else f"[{order}]" if _has_columns(second) else f".loc[{order}]"
            raise ValueError(
                f"{function}: {argument} has the {'column' if _has_columns(second) else 'name'} {name!r} at place {place}, "
                f"{first[0]} at place {at}; reorder one: {argument}{chosen}"
            )


def texts(x):
    """(names of columns, names of rows) of a frame or series of pandas or polars, each None unless all of them are text."""
    if type(x).__module__.startswith("polars"):
        return (list(x.columns) if hasattr(x, "columns") else None), None
    if not type(x).__module__.startswith("pandas") or not hasattr(x, "axes"):
        return None, None
    rows, columns = x.axes if len(x.axes) == 2 else (*x.axes, ())
    return _if_text(columns), _if_text(rows)


def _if_text(names):
    return list(names) if len(names) > 0 and all(isinstance(name, str) for name in names) else None


def _index(named):
    _, x, axis = named
    if not type(x).__module__.startswith("pandas") or not hasattr(x, "axes") or x.ndim < -axis:
        return None
    index = x.axes[axis]
    return None if type(index).__name__ == "RangeIndex" else index


def _has_columns(named):
    _, x, axis = named
    return x.ndim == 2 and axis == -1
