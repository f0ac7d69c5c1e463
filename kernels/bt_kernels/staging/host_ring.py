"""Pinned host memory that kernels read while the host goes on.

Where the device does not see pinned memory (`Place.pinned`), the host fills ordinary memory, which
is copied to the device before a kernel reads it.
"""

from __future__ import annotations

import torch
import triton

from bt_kernels.launches import Place, written

ALIGNMENT = 16  # elements; kernels read 16 bytes at a time, and no two buffers share a cache line


class HostRing:
    """A ring of int32 buffers that the host fills and kernels read, pinned where there is a GPU.

    A buffer is filled again only after the kernels that were enqueued while it was current have
    run. A caller that knows how many buffers can be in flight passes `in_flight`, and then nothing
    waits. Otherwise the buffers are divided into sets. When `advance` leaves a set, it records an
    event behind the set's readers, and waits for the event of the next set; all readers of a set
    must then be on the device's stream that is current when it is left.

    Args:
        size: int32 elements of a buffer at the start.
        place: the device that reads. With its compiled module an event is recorded in a fifth of
            the time that torch takes.
        in_flight: the most buffers that the device has yet to read when `advance` is called, as
            promised by the caller. `None`: no promise.
        depth: sets of buffers, if there is no promise.
        per_set: buffers of a set, if there is no promise. Recording one event and waiting for
            another take 2.7 us (measured on an H200), once for each set.

    Raises:
        ValueError: when `in_flight` is below 1.
    """

    def __init__(
        self,
        size: int,
        place: Place,
        *,
        in_flight: int | None = None,
        depth: int = 2,
        per_set: int = 8,
    ) -> None:
        if in_flight is not None and in_flight < 1:
            raise ValueError(f"in_flight is {in_flight}; expected 1 or more")
        self._device = place.device
        self._on_gpu = place.device.type == "cuda"
        self._copy = None if place.pinned else _Copy(place)
        waits = self._on_gpu and in_flight is None
        self.depth, self._per_set = (depth, per_set) if in_flight is None else (in_flight + 1, 1)
        self._buffers: list[torch.Tensor] = []
        for _ in range(self.depth):
            self._buffers += self._allocate(size)
        self._views = [buffer.numpy().data for buffer in self._buffers]
        self._events = _Events(self.depth, place) if waits else None
        self._current = 0
        self._was_read = True

    @property
    def num_buffers(self) -> int:
        """Buffers of all sets."""
        return len(self._buffers)

    @property
    def current(self) -> torch.Tensor:
        """The buffer that kernels are to read now; it is filled, since it may be copied."""
        buffer = self._buffers[self._current]
        return buffer if self._copy is None else self._copy.of(buffer)

    def note_reader(self) -> None:
        """Note that all readers of the current buffer have been launched."""
        self._was_read = True

    def advance(self, size: int) -> memoryview:
        """Make the next buffer current, and return it for filling; it has `size` or more elements.

        Waits while the device still reads it, unless `in_flight` was given.
        """
        if self._on_gpu and not self._was_read:
            # A launch failed, and the promise does not count it.
            torch.cuda.synchronize(self._device)
        self._was_read = False
        if self._copy is not None:
            self._copy.expect(size)
        following = self._current + 1
        if following % self._per_set == 0 or len(self._views[following]) < size:
            following = self._enter_set(following - 1, size)
        self._current = following
        return self._views[following]

    def _enter_set(self, last: int, size: int) -> int:
        """Leave the set of a buffer for the next one; return the first buffer of the next.

        Its buffers are made larger if they have to be: none of them is read any more.
        """
        left = last // self._per_set
        entered = (left + 1) % self.depth
        if self._events is not None:
            self._events.record(left)
            self._events.wait_for(entered)
        first = entered * self._per_set
        room = len(self._views[first])
        if room < size:
            its = slice(first, first + self._per_set)
            self._buffers[its] = self._allocate(max(size, 2 * room))
            self._views[its] = [buffer.numpy().data for buffer in self._buffers[its]]
        return first

    def _allocate(self, size: int) -> list[torch.Tensor]:
        """Allocate the buffers of a set, of `size` elements or a few more, side by side."""
        size = -(-max(size, 1) // ALIGNMENT) * ALIGNMENT
        pins = self._on_gpu and self._copy is None
        memory = torch.zeros(self._per_set * size, dtype=torch.int32, pin_memory=pins)
        return list(torch.split(memory, size))


class _Copy:
    """A copy of a ring's current buffer on the device.

    One is enough: copies and the kernels that read them are in the order of the stream.
    """

    def __init__(self, place: Place) -> None:
        self._tensor = torch.zeros(0, dtype=torch.int32, device=place.device)
        self._missing = 0

    def expect(self, size: int) -> None:
        """Note that a buffer is being filled, up to an element."""
        self._missing = size

    def of(self, buffer: torch.Tensor) -> torch.Tensor:
        """Return the copy of a buffer, made now unless it was since the buffer was filled."""
        if self._tensor.numel() < buffer.numel():
            self._tensor = torch.zeros_like(buffer, device=self._tensor.device)
        if self._missing:
            with written():
                self._tensor[: self._missing].copy_(buffer[: self._missing])
            self._missing = 0
        return self._tensor


class CapturedBuffer:
    """A single int32 buffer that kernels in CUDA graphs read, and the host fills between replays.

    It never grows, since graphs hold its address. A node after the reader in its graph records when
    a replay has read it.

    Call `upload` once it is filled.

    Args:
        size: int32 elements.
        place: the device that reads.
        told: elements at its start that kernels write, too.

    Attributes:
        tensor: the buffer for kernels.
    """

    def __init__(self, size: int, place: Place, told: int = 0) -> None:
        on_gpu = place.device.type == "cuda"
        self._place, self._told = place, told
        self._host = torch.zeros(size, dtype=torch.int32, pin_memory=on_gpu and place.pinned)
        self.tensor = self._host
        if not place.pinned:
            self.tensor = torch.zeros(size, dtype=torch.int32, device=place.device)
        self._view = self._host.numpy().data
        self._read = torch.cuda.Event(external=True) if on_gpu else None  # type: ignore[no-untyped-call]

    def note_reader(self) -> None:
        """Record that the kernel just launched reads the buffer, also during a capture."""
        if self._read is not None:
            self._place.run(self._read.record)

    @property
    def view(self) -> memoryview:
        """The buffer, for reading at any time; if it is copied back, that waits for its writers."""
        if self.tensor is not self._host and self._told:
            with written():
                self._host[: self._told].copy_(self.tensor[: self._told])
        return self._view

    def wait(self) -> memoryview:
        """Return the buffer for filling, once all launched or replayed readers are done."""
        if self._read is not None:
            self._read.synchronize()
        return self.view

    def upload(self) -> None:
        """Let kernels read the filled buffer; takes a copy if they do not see the host's memory."""
        if self.tensor is not self._host:
            with written():
                self.tensor.copy_(self._host)


class ToldNumber:
    """An int32 that kernels write and the host reads.

    Args:
        place: the device that writes.

    Attributes:
        tensor: the number for kernels, `[1]`.
    """

    def __init__(self, place: Place) -> None:
        on_gpu = place.device.type == "cuda"
        self._host = torch.zeros(1, dtype=torch.int32, pin_memory=on_gpu and place.pinned)
        self._view = self._host.numpy().data
        self.tensor = self._host
        if not place.pinned:
            self.tensor = torch.zeros(1, dtype=torch.int32, device=place.device)

    def read(self) -> int:
        """Return the number as it is now; a copy from the device waits for earlier launches."""
        if self.tensor is not self._host:
            with written():
                self._host.copy_(self.tensor)
        return int(self._view[0])

    def write(self, number: int) -> None:
        """Write the number, while no kernel does."""
        self._view[0] = number
        if self.tensor is not self._host:
            with written():
                self.tensor.copy_(self._host)


class _Events:
    """An event per set of buffers, on the device's stream that is current when it is recorded."""

    def __init__(self, num_events: int, place: Place) -> None:
        self._place, self._native, self._index = place, place.native, place.index
        self._events = [torch.cuda.Event() for _ in range(num_events)]  # type: ignore[no-untyped-call]
        if place.native is not None:
            self._current_stream = triton.runtime.driver.active.get_current_stream
            for event in self._events:
                place.run(event.record)  # torch makes it only now
            self._handles = [event.cuda_event for event in self._events]

    def record(self, index: int) -> None:
        if self._native is None:
            self._place.run(self._events[index].record)
        else:
            self._native.record(self._handles[index], self._current_stream(self._index))

    def wait_for(self, index: int) -> None:
        """Wait for an event; return at once if it was never recorded."""
        if self._native is None:
            self._events[index].synchronize()
        else:
            self._native.wait_for(self._handles[index])
