"""Comparisons of a variant's whole tensors with the reference's."""

from __future__ import annotations

from typing import Any

import torch

from bt_bench.protocol import MismatchError
from bt_bench.worker.checking.alike import in_common


def compare_exactly(
    name: str, found: torch.Tensor | None, wanted: torch.Tensor, poison: int | None = None
) -> None:
    """Compare every element of two integer tensors by value; their widths may differ.

    Args:
        name: name of the tensor, for messages.
        found: the variant's tensor.
        wanted: the reference's tensor.
        poison: the value of elements that were never written.

    Raises:
        MismatchError: names the first element that differs.
    """
    compare_shape(name, found, wanted)
    assert found is not None
    if type(found) is not torch.Tensor:
        raise MismatchError(f"{name} is a {type(found).__name__}; expected a plain torch.Tensor")
    if found.dtype.is_floating_point or found.dtype is torch.bool:
        raise MismatchError(f"{name} has dtype {found.dtype}; expected integers")
    different = found.to(wanted.device) != wanted
    if bool(different.any()):
        raise MismatchError(describe(name, found, wanted, different, poison))


def in_parts(tensor: torch.Tensor) -> torch.Tensor:
    """Return a view with which torch computes, or else the tensor as it is.

    Complex numbers become pairs of floats, and pairs of numbers of 4 bits become bytes.
    """
    if tensor.dtype.is_complex:
        return torch.view_as_real(tensor.resolve_conj())
    return tensor.view(torch.uint8) if tensor.dtype is torch.float4_e2m1fn_x2 else tensor


def other_zeros(mine: torch.Tensor, theirs: torch.Tensor) -> torch.Tensor:
    """Return a mask of the elements where one is 0.0 and the other -0.0."""
    return (mine == 0) & (theirs == 0) & (mine.signbit() != theirs.signbit())


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors have the same shape, dtype and bits; NaN is no exception."""
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        return False
    if one.device != other.device:
        one, other = one.cpu(), other.cpu()
    return torch.equal(_bytes_of(one), _bytes_of(other))


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    flat = tensor.resolve_conj().resolve_neg().contiguous().reshape(-1)
    return flat.as_strided(flat.shape, (1,)).view(torch.uint8)  # one element may have any stride


def compare_shape(name: str, found: torch.Tensor | None, wanted: torch.Tensor) -> None:
    """Compare shapes.

    Raises:
        MismatchError: if they differ, or `found` is `None`.
    """
    if found is None or found.shape != wanted.shape:
        shape = None if found is None else tuple(found.shape)
        raise MismatchError(f"{name} has shape {shape}; expected {tuple(wanted.shape)}")


def describe(
    name: str,
    found: torch.Tensor,
    wanted: torch.Tensor,
    different: torch.Tensor,
    poison: float | None,
    within: str = "",
) -> str:
    """Describe a mismatch: the first element that differs, its values, and the count."""
    where = tuple(int(i) for i in different.nonzero()[0])
    value, right = found[where].item(), wanted[where].item()
    note = ""
    if value == right and str(value) == str(right):  # 0.0 and -0.0 are equal
        note = " by now: something went on after the call had returned"
    elif _is_poison(value, poison):
        note = " (never written by the variant)"
    elif _is_poison(right, poison):
        note = " (written although nothing may write there)"
    place = ", ".join(map(str, where))
    alike = ""
    if found.dtype is torch.bool or value == right:
        pass  # no distance is worth a word
    elif not note and found.dtype.is_floating_point:
        most = (found.double() - wanted.double())[different].abs().max()
        alike = f", by up to {float(most):.3g}"
    elif not note:
        there = different.cpu()  # the two tensors may be on different devices
        alike = in_common(found.cpu()[there].numpy(), wanted.cpu()[there].numpy())
    return (
        f"{name}[{place}] is {value}, expected {right}{within}{note}; "
        f"{int(different.sum())} of {different.numel()} elements differ{alike}"
    )


def _is_poison(value: float, poison: float | None) -> bool:
    return poison is not None and (value == poison or (value != value and poison != poison))


def compare_view(name: str, view: Any, wanted: torch.Tensor) -> None:
    """Check that a result is a view of the buffer that the call must write to.

    Raises:
        MismatchError: if it is no such view, or its shape or dtype differs.
    """
    if not isinstance(view, torch.Tensor):
        raise MismatchError(f"{name} is {kind_of(view)}; expected a tensor")
    if view.shape != wanted.shape or view.dtype != wanted.dtype:
        raise MismatchError(
            f"{name} has shape {tuple(view.shape)} and dtype {view.dtype}; expected "
            f"{tuple(wanted.shape)} and {wanted.dtype}"
        )
    if view.numel() and (view.data_ptr(), view.stride()) != (wanted.data_ptr(), wanted.stride()):
        raise MismatchError(f"{name} is not a view of the buffer that it must be written to")


def kind_of(value: object) -> str:
    """Describe a value by its type, or by its length if it is a tuple or list."""
    if isinstance(value, (tuple, list)):
        return f"{len(value)} values"
    return "None" if value is None else type(value).__name__
