"""Wrong variants of the examples that are one file: copies of it with one defect each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
FILES = ("moe_align", "rotary_cache")
SMALL = {"moe_align": "moe_align-tokens=24-*", "rotary_cache": "rotary_cache-tokens=5-*"}
"""The case of each file that the interpreter takes a moment for."""


@dataclass(frozen=True)
class Wrong:
    """A defect: `old`, which the file has once, becomes `new`, in the variant `triton`.

    Args:
        file: name of the example.
        old: text of it.
        new: what stands in its place.
        message: part of the message of the failed check.
        code: its reason code.
    """

    file: str
    old: str
    new: str
    message: str = ""
    code: str = "wrong_result"


_MOE_LAUNCH = "    count_kernel[(chunks,)](\n"
_ROTARY_LAUNCH = "    fused_kernel[(len(qkv), triton.cdiv(q_heads + kv_heads, HEAD_TILE))](\n"

WRONG = {
    "full blocks and unused experts get another block": Wrong(
        "moe_align",
        "tl.cdiv(total, BLOCK_SIZE) * BLOCK_SIZE",
        "(total // BLOCK_SIZE + 1) * BLOCK_SIZE",
    ),
    "experts are not padded": Wrong(
        "moe_align", "tl.cdiv(total, BLOCK_SIZE) * BLOCK_SIZE", "total"
    ),
    "padding is choice 0": Wrong(
        "moe_align",
        "tl.store(sorted_ids + places, num_choices, mask=",
        "tl.store(sorted_ids + places, 0, mask=",
        "sorted_ids[",
    ),
    "padding is left as it was": Wrong(
        "moe_align",
        "mask=places < num_sorted",
        "mask=places < num_choices",
        "sorted_ids[",
    ),
    "choices of an expert come in descending order": Wrong(
        "moe_align",
        "others[None, :] < choices[:, None]",
        "others[None, :] > choices[:, None]",
        "sorted_ids[",
    ),
    "blocks that are not used have an expert": Wrong(
        "moe_align", "tl.where(starts < num_used, expert, -1)", "expert", "expert_ids["
    ),
    "aligns once for each shape": Wrong(
        "moe_align",
        _MOE_LAUNCH,
        "    if hasattr(two_kernels, 'done'):\n"
        "        return [o.copy_(d) for o, d in zip((sorted_ids, expert_ids, num_padded),\n"
        "                                           two_kernels.done)]\n"
        f"{_MOE_LAUNCH}",
    ),
    "a token without a slot is written before the cache": Wrong(
        "rotary_cache", " & (slot >= 0)", "", code="out_of_bounds"
    ),
    "a token without a slot is written to the last": Wrong(
        "rotary_cache",
        "    written = real & (heads >= q_heads) & (slot >= 0)\n",
        "    written = real & (heads >= q_heads)\n    slot = tl.where(slot < 0, 143, slot)\n",
        "argument key_cache[8, 15,",
    ),
    "slot 0 is skipped, too": Wrong(
        "rotary_cache", "(slot >= 0)", "(slot > 0)", "argument key_cache[0, 0,"
    ),
    "keys are written before they are rotated": Wrong(
        "rotary_cache",
        "tl.store(key_cache + place, y1, mask=written)",
        "tl.store(key_cache + place, x1, mask=written)",
        "argument key_cache[",
    ),
    "keys are not rotated in place": Wrong(
        "rotary_cache",
        "tl.store(own, y1, mask=real)",
        "tl.store(own, y1, mask=heads < q_heads)",
        "argument qkv[",
    ),
    "values are rotated, too": Wrong(
        "rotary_cache",
        "    v2 = tl.load(values + HALF, mask=written)\n",
        "    v2 = y2\n",
        "argument value_cache[",
    ),
    "the sine has the wrong sign": Wrong(
        "rotary_cache", "(x1 * cos - x2 * sin).to", "(x1 * cos + x2 * sin).to", "argument qkv["
    ),
    "slots of the first call": Wrong(
        "rotary_cache",
        _ROTARY_LAUNCH,
        "    if not hasattr(fused, 'slots'):\n"
        "        fused.slots = slot_mapping.clone()\n"
        f"    slot_mapping = fused.slots\n{_ROTARY_LAUNCH}",
        "argument key_cache[",
    ),
}

# What the first call has found is remembered behind the launches.
_REMEMBER = "    two_kernels.done = [o.clone() for o in (sorted_ids, expert_ids, num_padded)]\n"
_BEHIND = {"aligns once for each shape": _REMEMBER}


def text_of(file: str) -> str:
    """Returns the text of an example."""
    return (EXAMPLES / f"{file}.py").read_text(encoding="utf-8")


def wrong_text(name: str) -> str:
    """Returns the text of an example with a defect."""
    wrong = WRONG[name]
    text = text_of(wrong.file)
    assert text.count(wrong.old) == 1, f"{name}: {wrong.file}.py has changed; adapt its defect"
    # The last function of a file is its variant `triton`.
    return text.replace(wrong.old, wrong.new) + _BEHIND.get(name, "")
