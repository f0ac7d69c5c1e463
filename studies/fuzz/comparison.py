"""Differences of buffers, counted on the device and read later."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Difference:
    """Wrong elements of a buffer after a step: their number; index and values of the first."""

    step: int
    kind: str
    buffer: str
    count: int
    first: int
    found: int
    expected: int


class Comparison:
    """Comparisons of whole buffers, none of which makes the host wait before they are read.

    Args:
        device: where the buffers are; some may be on the CPU all the same.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._unread: list[tuple[int, str, str, torch.Tensor]] = []

    def add(
        self, step: int, kind: str, buffer: str, found: torch.Tensor, expected: torch.Tensor
    ) -> None:
        """Compare two buffers of one shape and of integers, as they are at this point."""
        wrong = (found != expected).flatten()
        if not wrong.numel() or (wrong.device.type == "cpu" and not wrong.any()):
            return
        first = wrong.to(torch.uint8).argmax()
        values = found.reshape(-1)[first], expected.reshape(-1)[first]
        facts = torch.stack([wrong.sum(), first, *(value.to(torch.int64) for value in values)])
        self._unread.append((step, kind, buffer, facts))

    def read(self) -> Iterator[Difference]:
        """Wait for the device, and yield the differences since the last reading."""
        if not self._unread:
            return
        facts = torch.stack([found.to(self._device) for *_, found in self._unread]).tolist()
        unread, self._unread = self._unread, []
        for (step, kind, buffer, _), (count, first, found, expected) in zip(
            unread, facts, strict=True
        ):
            if count:
                yield Difference(step, kind, buffer, count, first, found, expected)
