"""The lengths of all request rows: written on the host, read on the device."""

from __future__ import annotations

from collections.abc import Sequence

import torch


class StagedLengths:
    """Lengths of all rows on the host, and their copy on the device.

    The copy to the device is asynchronous: when the host writes the lengths of the next step, the
    device may not have read those of this step yet. Therefore there are two pinned buffers. The
    first write after a copy goes to the other buffer, once the device has read its old contents.
    Only `write` waits, which allows `publish` to be captured into a CUDA graph.

    Args:
        max_num_reqs: number of rows.
        device: device of the copy.

    Attributes:
        on_host: `[max_num_reqs]` int32, the lengths written last, in tokens. The device never
            reads it.
        on_device: `[max_num_reqs]` int32, in tokens, as of the last `publish`.
    """

    def __init__(self, max_num_reqs: int, device: torch.device) -> None:
        on_gpu = device.type == "cuda"
        self.on_host = torch.zeros(max_num_reqs, dtype=torch.int32)
        self.on_device = torch.zeros(max_num_reqs, dtype=torch.int32, device=device)
        self._buffers = [
            torch.zeros(max_num_reqs, dtype=torch.int32, pin_memory=on_gpu) for _ in range(2)
        ]
        self._current = 0
        self._published = False  # whether the device may read the current buffer
        self._read = [torch.cuda.Event() for _ in range(2)] if on_gpu else []
        # NumPy writes a few elements much faster than torch.
        self._lengths = self.on_host.numpy()
        self._arrays = [buffer.numpy() for buffer in self._buffers]

    def write(self, rows: Sequence[int], lengths: Sequence[int]) -> None:
        """Set the lengths of some rows; the others keep theirs."""
        if self._published:
            self._current = 1 - self._current
            self._published = False
            if self._read:
                self._read[self._current].synchronize()
        self._lengths[rows] = lengths
        self._arrays[self._current][:] = self._lengths

    def publish(self) -> torch.Tensor:
        """Start to copy all lengths to the device, and return `on_device`."""
        self.on_device.copy_(self._buffers[self._current], non_blocking=True)
        self.note_read()
        return self.on_device

    def note_read(self) -> None:
        """Record that the device reads the current buffer, up to this point of the current stream.

        A capture reads nothing yet: call this after each replay of the graph.
        """
        self._published = True
        if self._read and not torch.cuda.is_current_stream_capturing():
            self._read[self._current].record()
