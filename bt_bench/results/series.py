"""Shorthand for series, and their order."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bt_bench.results.nouns import Cache, LaunchPath, Load, Method, Quantity, Series

METHODS: dict[Quantity, Method] = {
    Quantity.HOST_US: Method.HOST_CLOCK,
    Quantity.STAGE_US: Method.HOST_CLOCK,
    Quantity.GPU_US: Method.PROFILER,
    Quantity.SPAN_US: Method.PROFILER,
    Quantity.GAP_US: Method.PROFILER,
    Quantity.LAST_US: Method.PROFILER,
    Quantity.STEP_US: Method.HOST_CLOCK,
    Quantity.PIPELINED_US: Method.HOST_CLOCK,
    Quantity.EVENT_US: Method.EVENTS,
}
"""The method of each quantity, unless a series says otherwise."""

_PLACES = {
    member: place
    for members in (Quantity, LaunchPath, Load, Cache, Method)
    for place, member in enumerate(members)
}


def series_of(
    quantity: Quantity,
    *,
    launch_path: LaunchPath = LaunchPath.JIT,
    load: Load = Load.IDLE,
    l2: Cache = Cache.HOT,
    method: Method | None = None,
) -> Series:
    """The series of a quantity: by default of Triton's call, on an idle device with a warm L2."""
    return Series(
        quantity=quantity,
        method=method or METHODS[quantity],
        launch_path=launch_path,
        load=load,
        l2=l2,
    )


def place_of(series: Series) -> tuple[int, ...]:
    """Key to sort series by: quantity, then launch path, load, L2 and method."""
    parts = (series.quantity, series.launch_path, series.load, series.l2, series.method)
    return tuple(_PLACES[part] for part in parts)


FloatArray = npt.NDArray[np.float64]
