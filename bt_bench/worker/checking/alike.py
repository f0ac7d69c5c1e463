"""Say in which way all elements of a buffer are wrong, where they are so in one way."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray


def in_common(found: NDArray[Any], wanted: NDArray[Any]) -> str:
    """Return what wrong elements have in common, as a clause: `, each by +1`, `, all are 0`.

    Args:
        found: values of the elements that differ.
        wanted: the right values, in the same order.

    Returns:
        The clause; empty for a single element, and where they have nothing in common.
    """
    if found.size < 2:
        return ""
    if (found == found[0]).all():
        return f", all are {found[0]}"
    if found.dtype.kind in "iu" and wanted.dtype.kind in "iu":
        apart = found - wanted  # modulo the size of the type: equal ones may have two signs
        is_more = found > wanted
        if (apart == apart[0]).all() and (is_more == is_more[0]).all():
            return f", each by {int(found[0]) - int(wanted[0]):+d}"
    return ""
