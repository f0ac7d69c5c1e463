"""Intervals of staged writes, what they are packed into, and the ring of host buffers."""

from __future__ import annotations

from array import array

import pytest
import torch

from bt_kernels.staging import RECORD_FIELDS, HostRing, StagedWrites

CPU = torch.device("cpu")


def ids(*values):
    return array("i", values)


def test_appends_extend_an_interval_and_an_overwrite_replaces_it():
    staged = StagedWrites(1)
    staged.add(0, 4, 2, ids(7), overwrite=False)
    staged.add(0, 4, 3, ids(8, 9), overwrite=False)
    assert staged.groups[0] == {4: (2, ids(7, 8, 9))}
    staged.add(0, 4, 0, ids(5), overwrite=True)
    assert staged.groups[0] == {4: (0, ids(5))}


def test_an_empty_overwrite_is_a_write():
    staged = StagedWrites(2)
    assert not staged
    staged.add(1, 3, 0, ids(), overwrite=True)
    assert staged
    staged.clear()
    assert not staged


@pytest.mark.parametrize("first", [0, 1])
def test_records_come_first_and_say_where_their_ids_are(first):
    staged = StagedWrites(3)
    staged.add(0, 4, 2, ids(70, 71), overwrite=False)
    staged.add(2, 5, 0, ids(), overwrite=True)
    staged.add(2, 1, 6, ids(72), overwrite=False)
    records_per_group, packed = staged.pack(first)
    assert records_per_group == [1, 0, 2]
    place = first + 3 * RECORD_FIELDS
    assert packed == ids(
        *(0, 4, 2, 2, place),
        *(2, 5, 0, 0, place + 2),
        *(2, 1, 6, 1, place + 2),
        *(70, 71, 72),
    )


def test_the_ring_goes_round():
    ring = HostRing(4, CPU, in_flight=2)
    addresses = []
    for _ in range(4):
        ring.advance(4)[0] = 1
        addresses.append(ring.current.data_ptr())
    assert ring.depth == 3
    assert len(set(addresses[:3])) == 3
    assert addresses[3] == addresses[0]


def test_a_buffer_grows_and_is_filled_in_place():
    ring = HostRing(2, CPU)
    view = ring.advance(5)
    view[:5] = ids(1, 2, 3, 4, 5)
    assert ring.current[:5].tolist() == [1, 2, 3, 4, 5]


def test_a_captured_buffer_never_grows():
    ring = HostRing(4, CPU, depth=1, fixed=True)
    before = ring.current.data_ptr()
    ring.advance(4)
    assert ring.current.data_ptr() == before
    assert ring.has_room(4)
    assert not ring.has_room(5)
    with pytest.raises(ValueError, match="size is 5; expected at most 4"):
        ring.advance(5)


@pytest.mark.parametrize("options", [{"depth": 0}, {"in_flight": 0}])
def test_a_ring_has_a_buffer(options):
    (name,) = options
    with pytest.raises(ValueError, match=f"{name} is 0; expected 1 or more"):
        HostRing(4, CPU, **options)
