"""baseline as it was: host code in Python, and block ids staged by a call per request."""

from bt_kernels.device_tables import DeviceBlockTables


class Variant(DeviceBlockTables):
    """`baseline` without the compiled helpers and without `append_many`."""

    native = False
    append_many = None
