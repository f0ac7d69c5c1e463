"""Shorthand for series, and their order."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from bt_bench.results.run.nouns import Cache, LaunchPath, Load, Method, Quantity, Series

_PLACES = {
    member: place
    for members in (Quantity, LaunchPath, Load, Cache, Method)
    for place, member in enumerate(members)
}


@lru_cache(maxsize=1024)
def series_of(
    quantity: Quantity,
    *,
    launch_path: LaunchPath = LaunchPath.JIT,
    load: Load = Load.IDLE,
    l2: Cache = Cache.HOT,
    method: Method | None = None,
) -> Series:
    """Return a series of a quantity: by default, Triton's call on an idle device with a warm L2."""
    return Series(
        quantity=quantity,
        method=method or quantity.traits.method,
        launch_path=launch_path,
        load=load,
        l2=l2,
    )


def place_of(series: Series) -> tuple[int, ...]:
    """Return a sort key of a series: quantity, then launch path, load, L2 and method."""
    parts = (series.quantity, series.launch_path, series.load, series.l2, series.method)
    return tuple(_PLACES[part] for part in parts)


FloatArray = npt.NDArray[np.float64]
