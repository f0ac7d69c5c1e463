"""The port to a GPU, with torch's functions replaced."""

from __future__ import annotations

from unittest.mock import MagicMock

from bt_bench.worker.measuring import ports


def test_all_graphs_share_one_pool_that_a_graph_keeps(monkeypatch):
    """With a pool each, graphs of calls that allocate would fill the device."""
    cuda = MagicMock()
    graphs = []
    cuda.CUDAGraph.side_effect = lambda: graphs.append(MagicMock()) or graphs[-1]
    monkeypatch.setattr(ports.torch, "cuda", cuda)
    monkeypatch.setattr(ports, "CacheFlush", MagicMock)
    monkeypatch.setattr(ports, "launch_spin", MagicMock())
    port = ports.CudaPort()
    (first,) = graphs
    assert port._first is first
    calls = MagicMock()
    assert port.capture(calls, 3) is graphs[1]
    assert calls.call_count == 3
    for graph in graphs:
        graph.capture_begin.assert_called_once_with(pool=cuda.graph_pool_handle.return_value)
        graph.capture_end.assert_called_once_with()
    cuda.graph_pool_handle.assert_called_once_with()
