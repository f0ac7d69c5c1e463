"""Wrong variants of page indices: copies of `fused.py` with one defect each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SUITE = ROOT / "examples" / "suites" / "page_indices"


@dataclass(frozen=True)
class Wrong:
    """A defect: `old`, which `fused.py` has once, becomes `new`.

    Args:
        what: the defect, as a user would see it.
        old: text of `fused.py`.
        new: what stands in its place.
        code: the reason code of the failed check.
        message: part of its message.
        workload: the conformance workload that shows it first.
    """

    what: str
    old: str
    new: str
    message: str
    code: str = "wrong_result"
    workload: str = "corners"


_STORE_LAST = "        tl.store(last_page_len + request, tl.where(num_pages > 0, in_last, 0))\n"
_STORE_TOTAL = "            tl.store(indptr + num_reqs, start + num_pages)\n"
_RETURN = "        return self._views(num_reqs)\n"
_PUBLISH = "            self.staged.publish(),\n"

WRONG = {
    "writes_behind": Wrong(
        "an id is written behind the last page of the batch",
        _STORE_TOTAL,
        _STORE_TOTAL + "            tl.store(indices + start + num_pages, row.to(tl.int32))\n",
        "written although nothing may write there",
    ),
    "last_page_of_full_ones": Wrong(
        "a last page that is full counts as empty",
        "in_last = length - (num_pages - 1) * PAGE_SIZE",
        "in_last = length % PAGE_SIZE",
        "last_page_len[",
    ),
    "ignores_the_mapping": Wrong(
        "requests are taken for rows",
        "row = tl.load(idx_mapping + request).to(tl.int64)",
        "row = request.to(tl.int64)",
        "expected",
    ),
    "forgets_empty_requests": Wrong(
        "a request without tokens has a full last page",
        _STORE_LAST,
        "        tl.store(last_page_len + request, in_last)\n",
        "last_page_len[",
    ),
    "forgets_empty_batches": Wrong(
        "nothing is written for an empty batch",
        "(max(num_reqs, 1),)",
        "(num_reqs,)",
        "indptr[0] is",
    ),
    "changes_an_input": Wrong(
        "the mapping of the caller is reused",
        _RETURN,
        "        idx_mapping.add_(1)\n" + _RETURN,
        "the argument idx_mapping was changed",
    ),
    "changes_the_page_table": Wrong(
        "pages are taken out of the page table",
        _RETURN,
        "        self.page_table.zero_()\n" + _RETURN,
        "page_table[",
    ),
    "stale_lengths": Wrong(
        "the lengths of the step before are used",
        _PUBLISH,
        "            (self.staged.on_device.clone(), self.staged.publish())[0],\n",
        "expected",
    ),
    "returns_copies": Wrong(
        "copies are returned",
        _RETURN,
        "        return tuple(view.clone() for view in self._views(num_reqs))\n",
        "is not a view",
    ),
    "two_write_one_element": Wrong(
        "each program also writes where the next one begins",
        _STORE_LAST,
        _STORE_LAST + "        tl.store(indptr + request + 1, start + num_pages)\n",
        "of the same launch writes too",
        code="race",
    ),
    "first_tile_only": Wrong(
        "only the first tile of the requests before is summed up",
        "for first in range(0, request, TILE):",
        "for first in range(0, tl.minimum(request, 1), TILE):",
        "of the same launch writes too",
        code="race",
        workload="many",
    ),
    "first_block_only": Wrong(
        "only the first block of the pages is copied",
        "for first_page in range(0, num_pages, BLOCK):",
        "for first_page in range(0, tl.minimum(num_pages, 1), BLOCK):",
        "never written",
        workload="tokens_as_pages",
    ),
    "reads_past_the_table": Wrong(
        "whole blocks of the page table are read",
        "tl.load(page_table + row * width + columns, mask=used)",
        "tl.load(page_table + row * width + columns)",
        "outside",
        code="out_of_bounds",
    ),
    "remembers": Wrong(
        "a batch of a size that was there before is not built again",
        "        num_reqs = idx_mapping.shape[0]\n",
        "        num_reqs = idx_mapping.shape[0]\n"
        "        self.known = getattr(self, 'known', set())\n"
        "        if num_reqs in self.known:\n"
        "            return self._views(num_reqs)\n"
        "        self.known.add(num_reqs)\n",
        "never written",
    ),
}


def write_wrong(folder: Path, *names: str) -> Path:
    """Writes wrong variants as a folder that `--kernels` takes; returns it.

    Raises:
        AssertionError: when the text to replace is not there once.
    """
    text = (SUITE / "page_kernels" / "variants" / "fused.py").read_text(encoding="utf-8")
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        wrong = WRONG[name]
        assert text.count(wrong.old) == 1, (name, text.count(wrong.old))
        (folder / f"{name}.py").write_text(text.replace(wrong.old, wrong.new), encoding="utf-8")
    return folder
