"""What a round lacks is kept as missing, in its place."""

from __future__ import annotations

import numpy as np
from support.gate_rounds import BASE, HEAD, subject

from bt_bench.analysis.rounds import Ledger
from bt_bench.results.gate.rounds import GateRound

HOST, DEVICE = subject(), subject(metric="gpu_us")


def test_ledger_keeps_what_is_absent() -> None:
    ledger = Ledger([HOST, DEVICE])
    ledger.add([GateRound((BASE,), {BASE: {HOST: 1.0}})])
    ledger.add([GateRound((HEAD,), {HEAD: {DEVICE: 2.0}})])
    assert ledger.rounds == 2
    np.testing.assert_array_equal(ledger.values()[BASE], [[1.0, np.nan], [np.nan, np.nan]])
    np.testing.assert_array_equal(ledger.values()[HEAD], [[np.nan, np.nan], [np.nan, 2.0]])
