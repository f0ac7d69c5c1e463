"""Compute the headline table from its samples, with numpy alone.

    python studies/recompute.py reports/headline/all/samples.npz

For each case and quantity ("host": host + stage, "gpu", "whole": stage to synchronize) the file has
ns by arm, round and step; -1 where an arm was not measured. Of batches it has "call", too: host
without staging. Lines without data are left out. Arm 0 is ours, arm 1 is vLLM's, the
others are the other shipped variants. A ratio needs rounds of three instances (sets of buffers).
Steps in which neither arm launches anything are left out.
"""

import sys

import numpy as np


def typical(data, key, arm):
    """Return the median over steps of each step's median over rounds, in µs; inf if unknown."""
    known = data[key][arm][(data[key][arm] >= 0).all(axis=1)]
    return np.median(np.median(known, axis=0)) / 1000 if known.size else np.inf


def pair(data, key, arm):
    """Return the rounds that arm 0 and another have in common; `None` if they are too few."""
    rounds = (data[key][[0, arm]] >= 0).all(axis=(0, 2))
    both = data[key][[0, arm]][:, rounds]
    both = both[:, :, (both != 0).any(axis=(0, 1))]
    enough = len({*data[f"{key} instances"][rounds].tolist()}) >= 3
    return both if enough and both.size and (both > 0).all() else None


def times_less(data, key, arm=1):
    """Return how many times as long another arm takes as arm 0: the median over rounds."""
    both = pair(data, key, arm)
    return both if both is None else np.exp(np.median(np.median(np.log(both[1] / both[0]), axis=1)))


def best(data, key):
    """Return the other shipped variant with the lowest median."""
    return min(range(2, len(data[key])), key=lambda arm: typical(data, key, arm))


def times_less_than_best(data, key):
    """Return `times_less` for the best other shipped variant."""
    return times_less(data, key, best(data, key))


def times_less_than_separate(data, key):
    """Return `times_less` for `separate`."""
    return times_less(data, key, data["arms"].tolist().index("separate"))


def tail(data, key):
    """Return p99 over median of arm 0, over that of arm 1; `None` for fewer than 100 samples."""
    both = pair(data, key, 1)
    if both is None or both[0].size < 100:
        return None
    late = np.percentile((both / np.median(both, axis=1, keepdims=True)).reshape(2, -1), 99, axis=1)
    return late[0] / late[1]


def spread(data, key):
    """Return p99 - p50 of arm 0 in µs, beside each step's median; `None` below 100 samples."""
    known = data[key][0][(data[key][0] >= 0).all(axis=1)]
    beside = known - np.median(known, axis=0) if known.size >= 100 else None
    return None if beside is None else np.percentile(beside, 99) / 1000


LINES = {
    "host + stage: times less than vLLM": (times_less, "host"),
    "GPU: times less than vLLM": (times_less, "gpu"),
    "stage to synchronize: times less than vLLM": (times_less, "whole"),
    "stage to synchronize: times less than the best other variant": (times_less_than_best, "whole"),
    "host + stage: p99 over median, over that of vLLM": (tail, "host"),
    "host without staging: times less than vLLM": (times_less, "call"),
    "host without staging: p99 - p50, µs": (spread, "call"),
    "stage to synchronize: times less than separate": (times_less_than_separate, "whole"),
}


def lines_of(data):
    """Return the lines of the table that a file has data for."""
    keys, first = {*data}, data["cases"].tolist()[0]
    return [
        title
        for title, (of, what) in LINES.items()
        if f"{first} {what}" in keys
        if of is not times_less_than_separate or "separate" in data["arms"]
    ]


def line(data, title):
    """Return the values of a line of the table by case, from the best to the worst."""
    of, what = LINES[title]
    found = {case: of(data, f"{case} {what}") for case in data["cases"].tolist()}
    known = ((case, float(value)) for case, value in found.items() if value is not None)
    return dict(sorted(known, key=lambda item: item[1], reverse=of not in (tail, spread)))


if __name__ == "__main__":
    data = np.load(sys.argv[1])
    for title in lines_of(data):
        values = line(data, title)
        cases, found = [*values], [*values.values()]
        shown = f"best {found[0]:.3g}, median {np.median(found):.3g}, worst {found[-1]:.3g}"
        print(f"{title}: {shown} ({cases[-1]}), {len(cases)} cases")
