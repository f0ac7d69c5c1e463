"""Package data: the Azure LLM inference traces of 2023, under the licence in `LICENSE.md`.

Columns `TIMESTAMP` (UTC, ticks of 100 ns), `ContextTokens`, `GeneratedTokens`; one request a line.
`bt_bench.suites.block_tables.workloads.serving.trace` reads them.
"""
