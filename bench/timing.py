"""Times of calls that are to be compared: each in turn, round by round, so that what slows the machine slows all."""

import math
import statistics
import time


def median_times(calls, rounds, *, clock=time.perf_counter, least=0.01):
    """Seconds of each call by name, the median of the rounds, in each as often as takes more than `least` seconds."""
    times = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            count = 1
            while True:
                start = clock()
                for _ in range(count):
                    call()
                elapsed = clock() - start
                if elapsed > least:
                    break
                count *= 4
            times[name].append(elapsed / count)
    return {name: statistics.median(values) for name, values in times.items()}


def least_times(calls, rounds=5, *, clock=time.process_time, seconds=0.05):
    """The least seconds of each call by name, called for so long in each round, at least once: for calls of very different
    lengths. Of processor time, which other processes on the machine do not lengthen, unless another clock is given."""
    times = dict.fromkeys(calls, math.inf)
    for _ in range(rounds):
        for name, call in calls.items():
            end = clock() + seconds
            while True:
                start = clock()
                call()
                stop = clock()
                times[name] = min(times[name], stop - start)
                if stop >= end:
                    break
    return times
