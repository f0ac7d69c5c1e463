"""A variant that imports from each module that variant files could import from at 4254f69."""

from bt_kernels.block_tables import BlockTables
from bt_kernels.device_code import DESCRIPTOR_FIELDS, gather_kernel
from bt_kernels.device_tables import DeviceBlockTables
from bt_kernels.fusions import FusedApply, FusedGatherSlots
from bt_kernels.interface import BlockTableOperations
from bt_kernels.launches import CompiledLaunches, apply_writes, gather, gather_slots, slots
from bt_kernels.layout import PAD_SLOT_ID, TableLayout
from bt_kernels.native import load
from bt_kernels.one_launch import OneLaunch
from bt_kernels.staging import RECORD_FIELDS, StagedWrites, staged_writes

USED = (
    *(BlockTables, DESCRIPTOR_FIELDS, gather_kernel, FusedApply, FusedGatherSlots, PAD_SLOT_ID),
    *(BlockTableOperations, CompiledLaunches, apply_writes, gather, slots, TableLayout, load),
    *(RECORD_FIELDS, StagedWrites, staged_writes),
)


class Variant(OneLaunch):
    """A step in one launch, and the separate launches of gather and slots as one."""

    def _launch_gather_slots(self, *arguments):
        assert isinstance(self, DeviceBlockTables)
        gather_slots(self, *arguments)
