"""Checks of the arguments of a step; each names the argument, its value and the limit."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bt_kernels.batch_inputs.buffers import RequestTensors
from bt_kernels.batch_inputs.layout import InputLayout
from bt_kernels.layout import TableLayout


def check_layouts(table_layout: TableLayout, layout: InputLayout) -> None:
    """Refuse layouts of tables and inputs that disagree.

    Raises:
        ValueError: naming both sizes.
    """
    if table_layout.max_num_reqs != layout.max_num_reqs:
        raise ValueError(
            f"max_num_reqs is {layout.max_num_reqs} for inputs and {table_layout.max_num_reqs} for "
            "tables; expected the same"
        )
    if table_layout.max_num_batched_tokens < layout.max_num_tokens:
        raise ValueError(
            f"max_num_tokens is {layout.max_num_tokens}; expected at most max_num_batched_tokens "
            f"of the tables, {table_layout.max_num_batched_tokens}"
        )


def check_sizes(
    layout: InputLayout,
    num_reqs: int,
    num_tokens: int,
    num_reqs_padded: int,
    num_tokens_padded: int,
) -> None:
    """Refuse a batch that is empty or larger than the layout.

    Raises:
        ValueError: naming the size and its limits.
    """
    if num_reqs < 1:
        raise ValueError(
            "rows is empty; expected one request or more: in a step without requests, call "
            "tables.apply_staged_writes"
        )
    if not num_reqs <= num_reqs_padded <= layout.max_num_reqs:
        raise ValueError(
            f"num_reqs_padded is {num_reqs_padded}; expected {num_reqs}, the requests, to "
            f"max_num_reqs, {layout.max_num_reqs}"
        )
    if not 1 <= num_tokens <= num_tokens_padded <= layout.max_num_tokens:
        raise ValueError(
            f"num_tokens_padded is {num_tokens_padded} for {num_tokens} tokens; expected at least "
            f"one token, and {num_tokens} to max_num_tokens, {layout.max_num_tokens}"
        )


def check_rows(layout: InputLayout, rows: npt.NDArray[np.int64]) -> None:
    """Refuse rows that do not exist.

    Raises:
        ValueError: naming the first one.
    """
    wrong = (rows < 0) | (rows >= layout.max_num_reqs)
    if wrong.any():
        batch = int(wrong.argmax())
        raise ValueError(
            f"rows[{batch}] is {rows[batch]}; expected 0 to {layout.max_num_reqs - 1}, since "
            f"max_num_reqs is {layout.max_num_reqs}"
        )


def check_words(
    layout: InputLayout,
    rows: npt.NDArray[np.int64],
    query_lens: npt.NDArray[np.int32],
    num_drafts: npt.NDArray[np.int32] | None,
) -> None:
    """Refuse arrays that do not fit the words of a launch, which would show it other rows.

    Raises:
        ValueError: naming the array, and its size or its first element that is wrong.
    """
    check_rows(layout, rows)
    for array, given, what in (
        ("query_lens", query_lens, "max_num_tokens"),
        ("num_drafts", num_drafts, "num_speculative_steps"),
    ):
        if given is None:
            continue
        limit = getattr(layout, what)
        if len(given) != len(rows):
            raise ValueError(f"{array} has {len(given)} entries; expected {len(rows)}, as rows")
        wrong = (given < 0) | (given > limit)
        if wrong.any():
            batch = int(wrong.argmax())
            raise ValueError(f"{array}[{batch}] is {given[batch]}; expected 0 to {what}, {limit}")


def check_contents(
    layout: InputLayout,
    requests: RequestTensors,
    rows: npt.NDArray[np.int64],
    query_lens: npt.NDArray[np.int32],
    prefill_lens: npt.NDArray[np.int32],
    num_drafts: npt.NDArray[np.int32] | None,
) -> None:
    """Refuse contents that have no meaning; this waits for the device.

    Raises:
        ValueError: naming the first request that is wrong.
    """
    for name, array in (("query_lens", query_lens), ("prefill_lens", prefill_lens)):
        if len(array) != len(rows):
            raise ValueError(f"{name} has {len(array)} entries; expected {len(rows)}, as rows")
    drafts = np.zeros(len(rows), dtype=np.int32) if num_drafts is None else num_drafts
    if len(drafts) != len(rows):
        raise ValueError(f"num_drafts has {len(drafts)} entries; expected {len(rows)}, as rows")
    check_rows(layout, rows)
    computed = requests.num_computed_tokens.cpu().numpy()
    prefill_len = requests.prefill_len.cpu().numpy()
    for batch, (row, length, count) in enumerate(
        zip(rows.tolist(), query_lens.tolist(), drafts.tolist(), strict=True)
    ):
        if not 0 <= count <= layout.num_speculative_steps:
            raise ValueError(
                f"num_drafts[{batch}] is {count}; expected 0 to num_speculative_steps, "
                f"{layout.num_speculative_steps}"
            )
        least = max(1, layout.num_new_sampled_tokens + count)
        if length < least:
            raise ValueError(
                f"query_lens[{batch}] is {length}; expected {least} or more, the logits of the "
                "request"
            )
        if int(computed[row]) + length > layout.max_model_len:
            raise ValueError(
                f"query_lens[{batch}] is {length} after {computed[row]} computed tokens; expected "
                f"no more than max_model_len, {layout.max_model_len}, in all"
            )
        if prefill_lens[batch] != prefill_len[row]:
            raise ValueError(
                f"prefill_lens[{batch}] is {prefill_lens[batch]}; expected {prefill_len[row]}, "
                f"prefill_len of row {row}"
            )
