"""The catalogue of variants, and the isolation of their revisions from each other."""

from __future__ import annotations

from bt_bench.variants.catalogue import (
    REFERENCE,
    VariantEntry,
    choose,
    default_variants,
    find_variants,
    is_adapted,
    kernels_folder,
    load_apart,
    load_reference,
    local_imports,
    modules_of,
    variants_folder,
)
from bt_bench.variants.isolation import (
    CACHES,
    TOOL,
    Isolation,
    add_variants_path,
    installed_places,
    is_there,
    real_path,
)
from bt_bench.variants.raised import (
    encodable,
    ignore_interrupts,
    is_interrupt,
    text_of,
    traceback_of,
)
