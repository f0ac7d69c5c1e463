"""Warming keeps within the cores that a container's CPU quota allows."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bt_kernels.device_tables.warming import usable_cores


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, 192),
        ({"cpu.max": "max 100000\n"}, 192),
        ({"cpu.max": "400000 100000\n"}, 4),
        ({"cpu.max": "50000 100000\n"}, 1),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 192),
        ({"cpu/cpu.cfs_quota_us": "250000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 2),
        ({"cpu/cpu.cfs_quota_us": "250000\n"}, 192),
        ({"cpu.max": "100000 0\n"}, 192),
        ({"cpu.max": "\n"}, 192),
    ],
)
def test_cores_of_a_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], cores: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: set(range(192)))
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert usable_cores(tmp_path) == cores
