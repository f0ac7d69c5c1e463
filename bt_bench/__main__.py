"""`python -m bt_bench`."""

from __future__ import annotations

from bt_bench.cli import main

if __name__ == "__main__":
    main()
