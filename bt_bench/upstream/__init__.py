"""Patches for releases of vLLM, made against the user's own copy."""

from bt_bench.upstream.changes import FileDiff, MadePatch, Patch, make_patch
from bt_bench.upstream.releases import PATCHES, file_name, file_text
from bt_bench.upstream.source import UNKNOWN, VLLM, Source, find_source, release_in
