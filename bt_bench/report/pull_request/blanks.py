"""The parts of a pull request that no measurement can fill in."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Blank:
    """A part for a human to write.

    Args:
        key: its name in JSON.
        section: the heading that it stands under.
        ask: the request, in Markdown.
    """

    key: str
    section: str
    ask: str


OVERVIEW = "Overview"
CLAIMS = "Claims"
VALIDATION = "Validation"
DETAILS = "Details"
CHECKLIST = "Pull Request Checklist"

BLANKS = (
    Blank(
        "summary",
        OVERVIEW,
        "Summarise the change in one or two sentences. Link its issues and pull requests.",
    ),
    Blank(
        "no_duplicate",
        OVERVIEW,
        "Why is this no duplicate? Name the searches among open pull requests and issues, the "
        "closest ones, and the difference.",
    ),
    Blank(
        "accountable",
        OVERVIEW,
        "Who answers for it? Name the person who has reviewed every changed line and ran the "
        "tests, and the parts that an assistant generated.",
    ),
    Blank(
        "claims",
        CLAIMS,
        "Claims of your own, such as unchanged outputs. Verify the measured ones below before you "
        "send them.",
    ),
    Blank(
        "end_to_end",
        VALIDATION,
        "End-to-end results: `vllm bench serve` with and without the change. Give model, GPUs, "
        "both full commands, the number of runs of each, and median and spread of throughput and "
        "latency.",
    ),
    Blank(
        "tests",
        VALIDATION,
        "Tests: the commands and their results, among them `tests/v1/worker/"
        "test_gpu_block_table.py`, and a run with `VLLM_GPU_SYNC_CHECK=error`.",
    ),
    Blank(
        "accuracy",
        VALIDATION,
        "Accuracy: a model evaluation, or equal token ids at temperature 0 with and without the "
        "change.",
    ),
    Blank(
        "design",
        DETAILS,
        "Motivation, design and trade-offs: the number of added lines, the reason why they are "
        "worth it, limitations, and alternatives that were tried.",
    ),
    Blank(
        "checklist",
        CHECKLIST,
        "Copy the checklist from vLLM's own template (`.github/PULL_REQUEST_TEMPLATE.md`) here, "
        "and tick it yourself.",
    ),
)
"""In the order of the description; the sections are those of vLLM 0.33.0's template."""
