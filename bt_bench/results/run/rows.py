"""The samples of one series, in one array."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, pairwise
from typing import Any, Self, overload

import numpy as np
import numpy.typing as npt
from pydantic_core import CoreSchema, core_schema

from bt_bench.results.run.series import FloatArray


def medians_over(samples: FloatArray, axis: int = 0) -> FloatArray:
    """Return the middle order statistics over an axis, or the means of the two middle ones.

    Args:
        samples: without a NaN. [..., R, ...]
        axis: the axis of the rounds, which the result lacks.

    Returns:
        NaN where there are no rounds.
    """
    # np.median takes up to eight times as long, and thousands of cases have many small arrays.
    ordered = np.sort(samples, axis=axis)
    half, is_odd = divmod(ordered.shape[axis], 2)
    middle: FloatArray
    if not ordered.shape[axis]:
        middle = ordered.sum(axis) + np.nan
        return middle
    middle = ordered.take(half, axis)
    if not is_odd:
        middle = middle / 2 + ordered.take(half - 1, axis) / 2
    return middle + 0.0  # no -0.0


def typical_of(samples: FloatArray) -> float:
    """Return the median over the steps of each step's median over the rounds. [R, S]"""
    medians = medians_over(samples)
    return float(medians[0] if len(medians) == 1 else medians_over(medians))


class SampleRows(Sequence[list[float]]):
    """A row of samples for each round; reads, compares and is stored as a list of lists.

    A run of thousands of cases has millions of samples. As lists of Python floats they take twelve
    times as much memory.

    Args:
        flat: the samples, one row after another.
        lengths: of the rows. They are equal, unless a file is damaged or a run was interrupted.
    """

    __slots__ = ("_ends", "flat")

    flat: FloatArray

    def __init__(self, flat: FloatArray, lengths: Sequence[int]) -> None:
        self.flat = flat
        # A range where rows are equal: all of them, and no list of numbers for each series.
        width = lengths[0] if lengths else 0
        self._ends: Sequence[int] = (
            range(0, width * len(lengths) + 1, width)
            if width > 0 and set(lengths) == {width}
            else tuple(accumulate(lengths, initial=0))
        )

    @classmethod
    def of(cls, rows: Sequence[Sequence[float]]) -> Self:
        """Return rows that are given as lists."""
        flat = np.fromiter(chain.from_iterable(rows), np.float64)
        return cls(flat, [*map(len, rows)])

    @property
    def lengths(self) -> list[int]:
        """Return the number of samples of each row."""
        return [end - start for start, end in pairwise(self._ends)]

    @property
    def width(self) -> int | None:
        """Return the number of samples of every row; `None` without rows, and if they differ."""
        if isinstance(self._ends, range):
            return self._ends.step
        return 0 if len(self) and not len(self.flat) else None

    @property
    def array(self) -> FloatArray:
        """Return the samples by round and step. [R, S]

        Raises:
            ValueError: if rows differ in length.
        """
        if self.width is None:
            raise ValueError(f"rows have lengths {self.lengths}; expected at least one, and equal")
        return self.flat.reshape(len(self), self.width)

    def tolist(self) -> list[list[float]]:
        """Return the rows as lists."""
        values: list[float] = self.flat.tolist()
        return [values[start:end] for start, end in pairwise(self._ends)]

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._ends) - 1

    @overload
    def __getitem__(self, index: int) -> list[float]: ...
    @overload
    def __getitem__(self, index: slice) -> list[list[float]]: ...
    def __getitem__(self, index: int | slice) -> list[float] | list[list[float]]:
        """Return a row, or several."""
        if isinstance(index, slice):
            return self.tolist()[index]
        place = range(len(self))[index]
        row: list[float] = self.flat[self._ends[place] : self._ends[place + 1]].tolist()
        return row

    def __iter__(self) -> Iterator[list[float]]:
        """Return the rows, one after another."""
        return iter(self.tolist())

    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> npt.NDArray[Any]:
        """Return `array`."""
        return np.array(self.array, dtype) if copy else np.asarray(self.array, dtype)

    def __eq__(self, other: object) -> bool:
        """Return whether rows, or lists of lists, have equal samples."""
        if isinstance(other, SampleRows):
            return self.lengths == other.lengths and np.array_equal(self.flat, other.flat)
        return self.tolist() == other

    __hash__ = None  # type: ignore[assignment]  # as a list

    def __repr__(self) -> str:
        """Return the rows as a list."""
        return repr(self.tolist())

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: object, _handler: object) -> CoreSchema:
        """Build the schema of a list of lists of times, which are not negative."""
        times = core_schema.float_schema(ge=0, allow_inf_nan=False)
        rows = core_schema.list_schema(core_schema.list_schema(times))
        made = core_schema.no_info_after_validator_function(cls.of, rows)
        return core_schema.json_or_python_schema(
            json_schema=made,
            python_schema=core_schema.no_info_wrap_validator_function(
                lambda value, handler: value if isinstance(value, cls) else handler(value), made
            ),
            serialization=core_schema.plain_serializer_function_ser_schema(
                cls.tolist, return_schema=rows
            ),
        )
