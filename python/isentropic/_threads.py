"""The number of threads: the one that was set, or that of another library that calls this one."""

import isentropic._core as _core

_asked = False  # whether set_num_threads was called with a number
followed = None  # the other library's number that is in use now


def set_num_threads(n):
    """Use at most `n` threads for every later call; 0 returns to the default, one per processor. Results do not change."""
    global _asked, followed
    _core.set_num_threads(n)
    _asked, followed = n != 0, None


def get_num_threads():
    """The largest number of threads that a call uses."""
    return _core.get_num_threads()


def follow(n):
    """Use another library's number, unless one was set here."""
    global followed
    if n != followed:
        if not _asked:
            _core.set_num_threads(n)
        followed = n


for _function in (set_num_threads, get_num_threads):
    _function.__module__ = "isentropic"
