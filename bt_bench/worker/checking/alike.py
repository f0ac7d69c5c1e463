"""A common pattern in the wrong elements of a buffer."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray


def in_common(found: NDArray[Any], wanted: NDArray[Any]) -> str:
    """Describe a pattern that wrong elements share, as a clause: `, each by +1`, `, all are 0`.

    Args:
        found: values of the elements that differ.
        wanted: the right values, in the same order.

    Returns:
        The clause; empty for a single element, or without a common pattern.
    """
    if found.size < 2:
        return ""
    if (found == found[0]).all():
        return f", all are {found[0]}"
    if found.dtype.kind in "iu" and wanted.dtype.kind in "iu":
        apart = found - wanted  # wraps around: equal differences may have different signs
        is_more = found > wanted
        if (apart == apart[0]).all() and (is_more == is_more[0]).all():
            return f", each by {int(found[0]) - int(wanted[0]):+d}"
    return ""
