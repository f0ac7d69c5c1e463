"""`bt-bench --suite … pages`: the page indices of given lengths, to compare a result by hand."""

from __future__ import annotations

from typing import Annotated

import typer

from bt_bench.errors import ExitCode, UsageError


def pages(
    lengths: Annotated[list[int], typer.Argument(help="Lengths in tokens, in batch order.")],
    page_size: Annotated[int, typer.Option(help="Tokens of a page.", min=1)] = 16,
) -> ExitCode:
    """Show the pages, indptr and last_page_len of requests of these lengths.

    Example: `bt-bench --suite examples/suites/page_indices pages 5 0 32 --page-size 16`
    """
    if min(lengths) < 0:
        raise UsageError(f"length {min(lengths)}; expected 0 tokens or more")
    typer.echo("request  length  pages  indptr  last_page_len")
    start = 0
    for request, length in enumerate(lengths):
        num_pages = -(-length // page_size)
        in_last = length - max(num_pages - 1, 0) * page_size
        typer.echo(f"{request:7}  {length:6}  {num_pages:5}  {start:6}  {in_last:13}")
        start += num_pages
    typer.echo(f"{'':24}{start:6}")
    return ExitCode.OK
