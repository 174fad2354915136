"""Interleaved timing: every candidate once a round, so that a busy machine slows all of them alike."""

import statistics
import time


def interleaved(candidates, *, rounds=15, clock=time.perf_counter, warm=2):
    """name -> list of seconds, one a round."""
    for function in candidates.values():
        for _ in range(warm):
            function()
    times = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, function in candidates.items():
            start = clock()
            function()
            times[name].append(clock() - start)
    return times


def ratio(times, name, base):
    """The median over rounds of name / base, each pair from the same round."""
    return statistics.median(a / b for a, b in zip(times[name], times[base], strict=True))


def table(title, header, rows):
    print(f"\n{title}\n")
    widths = [max(len(str(row[i])) for row in [header, *rows]) for i in range(len(header))]
    for row in [header, *rows]:
        print(
            "  "
            + "  ".join(
                str(cell).rjust(w) if i else str(cell).ljust(w)
                for i, (cell, w) in enumerate(zip(row, widths, strict=True))
            )
        )
