"""The sizes and flags that the inputs of batches are built for."""

from __future__ import annotations

from dataclasses import dataclass

from bt_kernels.layout import INT32_MAX, MAX_NUM_BATCHED_TOKENS, MAX_NUM_REQS, index_of

DRAFTS = "drafts"
LOOKAHEAD = "lookahead"
NO_BONUS = "no_bonus"

FEATURES = frozenset({DRAFTS, LOOKAHEAD, NO_BONUS})
"""Optional features beyond the plain path, by the names in a variant's `features`."""

_LIMITS = {
    "max_num_reqs": (1, MAX_NUM_REQS),
    "max_num_tokens": (1, MAX_NUM_BATCHED_TOKENS),
    "max_model_len": (1, INT32_MAX),
    "num_speculative_steps": (0, 1023),
    "num_lookahead": (1, 1024),
    "num_new_sampled_tokens": (0, 1),
}


@dataclass(frozen=True)
class InputLayout:
    """Sizes and flags of the input buffers of an engine; fixed for their life.

    Args:
        max_num_reqs: request rows; also the most requests in one batch.
        max_num_tokens: the most tokens in one step, padding included.
        max_model_len: columns of `all_token_ids`, the most tokens in one sequence.
        num_speculative_steps: columns of `draft_tokens`, the most draft tokens of a request. 0: no
            batch has drafts.
        num_lookahead: rows of `next_prefill_tokens`.
        num_new_sampled_tokens: logits of a request beyond one for each draft: 1, or 0 for models
            that sample no token of their own, such as diffusion models. 0 needs
            `num_speculative_steps` of 1 or more.
        marks_padding: whether each step writes `is_padding` (`VLLM_MOE_SKIP_PADDING` of vLLM).

    Raises:
        ValueError: when a size is not an integer or out of its range.
    """

    max_num_reqs: int
    max_num_tokens: int
    max_model_len: int
    num_speculative_steps: int = 0
    num_lookahead: int = 1
    num_new_sampled_tokens: int = 1
    marks_padding: bool = True

    def __post_init__(self) -> None:
        for name, (least, most) in _LIMITS.items():
            given = getattr(self, name)
            size = index_of(given)
            if size is None:
                raise ValueError(f"{name} is {given!r}; expected an integer")
            if not least <= size <= most:
                raise ValueError(f"{name} is {size}; expected {least} to {most}")
            object.__setattr__(self, name, size)
        if self.num_speculative_steps + self.num_new_sampled_tokens == 0:
            raise ValueError(
                "num_new_sampled_tokens and num_speculative_steps are both 0; expected 1 of the "
                "first or more of the second, since otherwise no step has logits"
            )
        object.__setattr__(self, "marks_padding", bool(self.marks_padding))

    @property
    def features(self) -> frozenset[str]:
        """Return the names in `FEATURES` that a variant needs for this layout."""
        needs = {
            DRAFTS: self.num_speculative_steps > 0,
            LOOKAHEAD: self.num_lookahead > 1,
            NO_BONUS: self.num_new_sampled_tokens == 0,
        }
        return frozenset(name for name, needed in needs.items() if needed)
