"""The lengths of all request rows: written on the host, read on the device."""

from __future__ import annotations

from collections.abc import Sequence

import torch


class StagedLengths:
    """Lengths of all rows on the host, and their copy on the device.

    The copy to the device is asynchronous: when the host writes the lengths of the next step, the
    device may still have to read those of this one. So there are two pinned buffers. The first
    write after a copy goes to the other buffer, once the device has read what that one held before.
    All waiting is in `write`, so that `publish` can be captured into a CUDA graph.

    Args:
        max_num_reqs: number of rows.
        device: where the copy is.

    Attributes:
        on_host: `[max_num_reqs]` int32, in tokens: what was written last. The device never reads
            it.
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
        """Sets the lengths of some rows; the others keep theirs."""
        if self._published:
            self._current = 1 - self._current
            self._published = False
            if self._read:
                self._read[self._current].synchronize()
        self._lengths[rows] = lengths
        self._arrays[self._current][:] = self._lengths

    def publish(self) -> torch.Tensor:
        """Starts to copy all lengths to the device, and returns `on_device`."""
        self.on_device.copy_(self._buffers[self._current], non_blocking=True)
        self.note_read()
        return self.on_device

    def note_read(self) -> None:
        """Notes that the device reads the current buffer, up to here in the current stream.

        What is captured reads nothing yet: whoever replays the graph has to call this afterwards.
        """
        self._published = True
        if self._read and not torch.cuda.is_current_stream_capturing():
            self._read[self._current].record()
