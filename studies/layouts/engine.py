"""Plan the KV cache groups of a model, and the widths of their rows, by vLLM 0.33.0's own code.

    python studies/layouts/engine.py WHEEL < requests.json

WHEEL is the folder of an unpacked wheel. A request is a JSON object with `family`, `dimensions`,
`lengths`, and perhaps `num_speculative_tokens` and `ranks`; the answer lists the groups of each.
The layers are built without weights, as objects of vLLM's classes, and these describe their caches.
vLLM chooses block sizes and layout, forms the groups, and computes the widths. Decided here are the
conditions: a Hopper GPU, tensors on one rank, bfloat16, and the backends that vLLM prefers there.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import fields
from importlib import import_module
from itertools import cycle, islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from stand_ins import StandIn, install

_BACKENDS = "vllm.v1.attention.backends"
_LAYERS = "vllm.model_executor.layers"
REAL = (
    "vllm.utils.math_utils",
    "vllm.utils.torch_utils",
    "vllm.v1.kv_cache_layout",
    "vllm.v1.kv_cache_spec_registry",
    "vllm.v1.kv_cache_interface",
    "vllm.v1.core.kv_cache_config_builder",
    "vllm.v1.core.kv_cache_planning",
    "vllm.v1.core.single_type_kv_cache_manager",
    "vllm.v1.worker.block_table",
    "vllm.v1.worker.utils",
    "vllm.platforms.interface",
    "vllm.v1.attention.backend",
    f"{_BACKENDS}.registry",
    f"{_BACKENDS}.utils",
    f"{_BACKENDS}.flash_attn",
    f"{_BACKENDS}.gdn_attn",
    f"{_BACKENDS}.mla.flashattn_mla",
    f"{_BACKENDS}.mla.flashattn_mla_sparse",
    f"{_BACKENDS}.mla.indexer",
    f"{_BACKENDS}.mla.sparse_swa",
    f"{_BACKENDS}.mla.sparse_utils",
    f"{_LAYERS}.attention_layer_base",
    f"{_LAYERS}.attention.attention",
    f"{_LAYERS}.attention.chunked_local_attention",
    f"{_LAYERS}.attention.mla_attention",
    f"{_LAYERS}.mamba.abstract",
    f"{_LAYERS}.mamba.kda_checkpoint",
    f"{_LAYERS}.mamba.mamba_utils",
    f"{_LAYERS}.mamba.mamba_mixer2",
    f"{_LAYERS}.mamba.gdn.base",
    f"{_LAYERS}.mamba.gdn.qwen_gdn_linear_attn",
    "vllm.model_executor.models.deepseek_v2",
    "vllm.model_executor.models.nemotron_h",
    "vllm.model_executor.models.qwen3_next",
    "vllm.models.deepseek_v4.attention",
    "vllm.models.deepseek_v4.compressor",
    "vllm.models.deepseek_v4.sparse_mla",
    "vllm.models.deepseek_v4.nvidia.flashmla",
    "vllm.models.kimi_k3.nvidia.kda",
    "vllm.models.kimi_k3.nvidia.mla",
    "vllm.models.kimi_k3.nvidia.model",
    "vllm.models.minimax_m3.common.indexer",
    "vllm.models.minimax_m3.common.sparse_attention",
    "vllm.models.minimax_m3.nvidia.model",
)


class _Hopper:
    """The platform, of which only a few questions are asked."""

    device_type = "cuda"

    def is_cuda(self) -> bool:
        return True

    def is_device_capability(self, capability: object) -> bool:
        return capability in (90, (9, 0))

    def is_device_capability_family(self, capability: int) -> bool:
        return capability == 90

    def get_device_capability(self) -> Any:
        return SimpleNamespace(major=9, minor=0)

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **options: False


class _CacheConfig(SimpleNamespace):
    DEFAULT_BLOCK_SIZE = 16

    def get_resolved_kv_cache_layout(self) -> Any:
        return _real("vllm.v1.kv_cache_layout").KVCacheLayout[self.kv_cache_layout]


def _real(name: str) -> Any:
    return import_module(name)


def prepare(wheel: Path) -> None:
    """Make vLLM's modules importable; only once in a process."""
    install(wheel, REAL)
    config = _real("vllm.config")
    config.CacheConfig = _real("vllm.config.cache").CacheConfig = _CacheConfig
    config.get_layers_from_vllm_config = _layers_of
    _real("vllm.config.vllm").get_layers_from_vllm_config = _layers_of
    config.get_current_vllm_config_or_none = lambda: None
    _real("vllm.config.cache").get_kv_cache_dtype_handler = lambda dtype: None
    _real("vllm.platforms").current_platform = _Hopper()
    _real("vllm.v1.hisparse.layout").get_hisparse_kv_cache_groups = lambda *given: None
    _real("vllm.distributed").divide = lambda whole, parts: whole // parts
    for name in ("vllm.distributed", "vllm.distributed.parallel_state"):
        _real(name).get_tensor_model_parallel_world_size = lambda: 1
    _real("vllm.envs").VLLM_SSM_CONV_STATE_LAYOUT = None
    # Only a GPU's registry of operators has a use for these.
    _real("vllm.utils.torch_utils").direct_register_custom_op = lambda *given, **options: None


def _layers_of(config: Any, kind: type, *_: object) -> dict[str, Any]:
    layers: dict[str, Any] = config.compilation_config.static_forward_context
    return {name: layer for name, layer in layers.items() if isinstance(layer, kind)}


def _bare(module: str, name: str, backend: Any = None, **attributes: Any) -> Any:
    """Return an object of a class of vLLM's that has these attributes and was never initialised."""
    given = getattr(_real(module), name)
    methods: dict[str, Any] = {"is_draft_layer": False}
    if backend is not None:
        methods["get_attn_backend"] = lambda self: backend
    for key in [key for key in attributes if isinstance(getattr(given, key, None), property)]:
        methods[key] = attributes.pop(key)
    made = type(name, (given,), methods)
    made.__abstractmethods__ = frozenset()  # type: ignore[attr-defined]
    layer = object.__new__(made)
    layer.__dict__.update(attributes)
    return layer


def _types(dimensions: dict[str, Any], default: str) -> list[str]:
    """Return the type of each layer; the pattern in `layer_types` repeats."""
    pattern = dimensions.get("layer_types", [default])
    return list(islice(cycle(pattern), dimensions["num_hidden_layers"]))


def _attention(dimensions: dict[str, Any], config: Any) -> Iterator[tuple[str, Any]]:
    flash = _real(f"{_BACKENDS}.flash_attn").FlashAttentionBackend
    types = _types(dimensions, "full_attention")
    own_cache = len(types) - dimensions.get("num_kv_shared_layers", 0)
    for index, kind in enumerate(types[:own_cache]):
        is_global = kind == "full_attention"
        heads = is_global and dimensions.get("num_global_key_value_heads")
        size = (is_global and dimensions.get("global_head_dim")) or dimensions["head_dim"]
        attributes = {
            "num_kv_heads": heads or dimensions["num_key_value_heads"],
            "head_size": size,
            "head_size_v": size,
            "kv_cache_torch_dtype": config.model_config.dtype,
            "kv_cache_dtype": config.cache_config.cache_dtype,
            "attn_type": _real("vllm.v1.attention.backend").AttentionType.DECODER,
            "attn_backend": flash,
            "sliding_window": (
                dimensions["sliding_window"] if kind == "sliding_attention" else None
            ),
        }
        module, name = f"{_LAYERS}.attention.attention", "Attention"
        if kind == "chunked_attention":
            module, name = f"{_LAYERS}.attention.chunked_local_attention", "ChunkedLocalAttention"
            attributes["attention_chunk_size"] = dimensions["attention_chunk_size"]
        yield f"layers.{index}.attn", _bare(module, name, flash, **attributes)


def _mla_layer(dimensions: dict[str, Any], config: Any, backend: Any, indexer: Any = None) -> Any:
    return _bare(
        f"{_LAYERS}.attention.mla_attention",
        "MLAAttention",
        backend,
        head_size=dimensions["kv_lora_rank"] + dimensions["qk_rope_head_dim"],
        kv_cache_dtype=config.cache_config.cache_dtype,
        sliding_window=None,
        topk_buffer_width=dimensions.get("index_topk"),
        indexer=indexer,
        non_causal_multi_token_decode=False,
    )


def _mla(dimensions: dict[str, Any], config: Any) -> Iterator[tuple[str, Any]]:
    backend = _real(f"{_BACKENDS}.mla.flashattn_mla").FlashAttnMLABackend
    for index in range(dimensions["num_hidden_layers"]):
        yield f"layers.{index}.attn", _mla_layer(dimensions, config, backend)


def _sparse_mla(dimensions: dict[str, Any], config: Any) -> Iterator[tuple[str, Any]]:
    """Latent attention with an indexer, whose keys are fp8 with a scale for each 128 values."""
    backend = _real(f"{_BACKENDS}.mla.flashattn_mla_sparse").FlashAttnMLASparseBackend
    size = dimensions["index_head_dim"]
    for index in range(dimensions["num_hidden_layers"]):
        yield (
            f"layers.{index}.indexer.k_cache",
            _bare(
                "vllm.model_executor.models.deepseek_v2",
                "DeepseekV32IndexerCache",
                head_dim=size + size // 128 * 4,
                dtype=torch.uint8,
                cache_config=config.cache_config,
            ),
        )
        yield f"layers.{index}.attn", _mla_layer(dimensions, config, backend, indexer=True)


def _deepseek_v4(dimensions: dict[str, Any], config: Any) -> Iterator[tuple[str, Any]]:
    """Each layer has a window; compressed ones have latent keys and a compressor's state as well.

    Those that also choose among what they compressed have an indexer with the same two.
    """
    config.cache_config.cache_dtype = "fp8_ds_mla"
    head, size = dimensions["head_dim"], dimensions["index_head_dim"]
    v4, cache = "vllm.models.deepseek_v4", config.cache_config
    flash = _real(f"{v4}.nvidia.flashmla").DeepseekV4FlashMLAAttention

    def state(ratio: int, width: int) -> Any:
        made = _bare(f"{v4}.compressor", "CompressorStateCache")
        torch.nn.Module.__init__(made)
        overlap = 1 + (ratio == 4)
        prefix = f"{len(config.compilation_config.static_forward_context)}"
        _real(f"{v4}.compressor").CompressorStateCache.__init__(
            made, 2 * overlap * width, torch.float32, ratio, prefix
        )
        return made

    for index, kind in enumerate(_types(dimensions, "sliding_attention")):
        ratio = dimensions["compress_rates"].get(kind, 1)
        name = f"layers.{index}.attn"
        if ratio == 4:
            yield (
                f"{name}.indexer.k_cache",
                _bare(
                    f"{v4}.attention",
                    "DeepseekV4IndexerCache",
                    head_dim=size + size // 128 * 4,
                    dtype=torch.uint8,
                    cache_config=cache,
                    compress_ratio=ratio,
                ),
            )
            yield f"{name}.indexer.compressor.state_cache", state(ratio, size)
        yield (
            f"{name}.swa_cache",
            _bare(
                f"{_BACKENDS}.mla.sparse_swa",
                "DeepseekV4SWACache",
                flash.swa_backend_cls,
                head_dim=head,
                window_size=dimensions["sliding_window"],
                dtype=torch.uint8,
                cache_config=cache,
                block_size=64,
                packed_bytes_per_token=584,
                packed_page_alignment=576,
                packed_block_stride_alignment=None,
                bounded_replay=False,
            ),
        )
        if ratio > 1:
            yield (
                name,
                _bare(
                    flash.__module__,
                    flash.__name__,
                    flash.backend_cls,
                    head_dim=head,
                    compress_ratio=ratio,
                    kv_cache_dtype="fp8_ds_mla",
                    kv_cache_torch_dtype=torch.uint8,
                ),
            )
            yield f"{name}.compressor.state_cache", state(ratio, head)


def _gdn(dimensions: dict[str, Any], config: Any) -> Iterator[tuple[str, Any]]:
    gdn = _real(f"{_LAYERS}.mamba.gdn.qwen_gdn_linear_attn")
    _, backend = gdn._resolve_gdn_prefill_backend(config)
    alignment = gdn.FLASHINFER_GDN_CHECKPOINT_ALIGNMENT if backend == "flashinfer" else None
    attention = dict(_attention(dimensions, config))
    for index, kind in enumerate(_types(dimensions, "linear_attention")):
        name = f"layers.{index}.attn"
        if kind == "full_attention":
            yield name, attention[name]
            continue
        layer = _bare(
            gdn.__name__,
            "QwenGatedDeltaNetAttention",
            SimpleNamespace(is_ssm=lambda: True),
            tp_size=1,
            num_k_heads=dimensions["linear_num_key_heads"],
            num_v_heads=dimensions["linear_num_value_heads"],
            head_k_dim=dimensions["linear_key_head_dim"],
            head_v_dim=dimensions["linear_value_head_dim"],
            conv_kernel_size=dimensions["linear_conv_kernel_dim"],
            num_spec=config.num_speculative_tokens,
            model_config=config.model_config,
            cache_config=config.cache_config,
            vllm_config=config,
            _checkpoint_alignment=alignment,
        )
        yield f"layers.{index}.linear_attn", layer
    drafting = {
        **dimensions,
        "layer_types": ["full_attention"],
        "num_hidden_layers": dimensions.get("num_draft_layers", 0),
    }
    for name, layer in _attention(drafting, config):
        yield f"mtp.{name}", layer


def _nemotron_h(dimensions: dict[str, Any], config: Any) -> Iterator[tuple[str, Any]]:
    """`M` is a layer of Mamba-2, `*` one of attention; others have no cache."""
    flash = dict(
        _attention(
            {**dimensions, "num_hidden_layers": len(dimensions["hybrid_override_pattern"])}, config
        )
    )
    heads, head = dimensions["mamba_num_heads"], dimensions["mamba_head_dim"]
    for index, kind in enumerate(dimensions["hybrid_override_pattern"]):
        if kind == "*":
            yield f"layers.{index}.attn", flash[f"layers.{index}.attn"]
        elif kind == "M":
            layer = _bare(
                f"{_LAYERS}.mamba.mamba_mixer2",
                "MambaMixer2",
                SimpleNamespace(is_ssm=lambda: True),
                intermediate_size=heads * head,
                num_heads=heads,
                head_dim=head,
                n_groups=dimensions["n_groups"],
                ssm_state_size=dimensions["ssm_state_size"],
                conv_kernel_size=dimensions["conv_kernel"],
                num_spec=config.num_speculative_tokens,
                model_config=config.model_config,
                cache_config=config.cache_config,
                use_replayssm=False,
            )
            yield f"layers.{index}.mixer", layer


def _kimi_linear(dimensions: dict[str, Any], config: Any) -> Iterator[tuple[str, Any]]:
    backend = _real(f"{_BACKENDS}.mla.flashattn_mla").FlashAttnMLABackend
    linear = dimensions["linear_attn_config"]
    for index in range(dimensions["num_hidden_layers"]):
        name = f"layers.{index}.attn"
        if index + 1 not in linear["kda_layers"]:
            module, kind = "vllm.models.kimi_k3.nvidia.mla", "MultiHeadLatentAttention"
            attributes: dict[str, Any] = {
                "head_size": dimensions["kv_lora_rank"] + dimensions["qk_rope_head_dim"],
                "kv_cache_dtype": "auto",
                "non_causal_multi_token_decode": False,
            }
            yield name, _bare(module, kind, backend, **attributes)
            continue
        layer = _bare(
            "vllm.models.kimi_k3.nvidia.kda",
            "KimiK3DeltaAttention",
            SimpleNamespace(is_ssm=lambda: True),
            tp_size=1,
            num_heads=linear["num_heads"],
            head_dim=linear["head_dim"],
            conv_size=linear["short_conv_kernel_size"],
            num_spec=config.num_speculative_tokens,
            model_config=config.model_config,
            cache_config=config.cache_config,
            kda_prefill_backend="triton",
        )
        yield name, layer


def _minimax_m3(dimensions: dict[str, Any], config: Any) -> Iterator[tuple[str, Any]]:
    m3 = "vllm.models.minimax_m3"
    backend = _real(f"{m3}.common.sparse_attention").MiniMaxM3SparseBackend
    dense = dict(_attention({**dimensions, "layer_types": ["full_attention"]}, config))
    for index, kind in enumerate(_types(dimensions, "full_attention")):
        name = f"layers.{index}.attn"
        if kind == "full_attention":
            yield name, dense[name]
            continue
        yield (
            f"{name}.index_cache",
            _bare(
                f"{m3}.common.indexer",
                "MiniMaxM3IndexerCache",
                _real(f"{m3}.common.indexer").MiniMaxM3IndexerBackend,
                head_dim=dimensions["index_head_dim"],
                dtype=torch.bfloat16,
            ),
        )
        yield (
            name,
            _bare(
                f"{m3}.nvidia.model",
                "MiniMaxM3SparseAttention",
                backend,
                num_kv_heads=dimensions["num_key_value_heads"],
                head_dim=dimensions["head_dim"],
                kv_cache_torch_dtype=torch.bfloat16,
                kv_cache_dtype="auto",
            ),
        )


_FAMILIES = {
    "attention": _attention,
    "mla": _mla,
    "sparse_mla": _sparse_mla,
    "deepseek_v4": _deepseek_v4,
    "gdn": _gdn,
    "nemotron_h": _nemotron_h,
    "kimi_linear": _kimi_linear,
    "minimax_m3": _minimax_m3,
}
_STATEFUL_MODELS = {
    "gdn": ("vllm.model_executor.models.qwen3_next", "Qwen3NextForCausalLM"),
    "nemotron_h": ("vllm.model_executor.models.nemotron_h", "NemotronHForCausalLM"),
    "kimi_linear": ("vllm.models.kimi_k3.nvidia.model", "KimiLinearForCausalLM"),
}


def _state_dtype(dimensions: dict[str, Any]) -> str:
    """Return the dtype that the model's config asks for; vLLM then stores states in it."""
    named = (dimensions.get(key) for key in ("mamba_ssm_dtype", "mamba_ssm_cache_dtype"))
    return next(filter(None, named), "auto")


def _config(family: str, dimensions: dict[str, Any], num_speculative_tokens: int) -> Any:
    """Return vLLM's config as far as planning reads it: defaults, with prefix caching."""
    is_mla = "kv_lora_rank" in dimensions
    head = dimensions.get("head_dim", 0)
    hf_config = SimpleNamespace(**dimensions)
    cache = _CacheConfig(
        block_size=_CacheConfig.DEFAULT_BLOCK_SIZE,
        user_specified_block_size=False,
        cache_dtype="auto",
        kv_cache_layout=None,
        kv_cache_dtype_skip_layers=None,
        skip_page_size_padded=None,
        mamba_cache_mode="align",
        mamba_block_size=_CacheConfig.DEFAULT_BLOCK_SIZE,
        mamba_page_size_padded=None,
        mamba_cache_dtype="auto",
        mamba_ssm_cache_dtype=_state_dtype(dimensions),
        prefix_match_unit=None,
        use_replayssm=False,
    )
    model = SimpleNamespace(
        dtype=torch.bfloat16,
        use_mla=is_mla,
        is_hybrid=family in _STATEFUL_MODELS,
        architecture=family,
        hf_config=hf_config,
        hf_text_config=hf_config,
        get_num_kv_heads=lambda parallel: 1 if is_mla else dimensions["num_key_value_heads"],
        get_head_size=lambda: (
            dimensions["kv_lora_rank"] + dimensions["qk_rope_head_dim"] if is_mla else head
        ),
    )
    speculative = SimpleNamespace(num_speculative_tokens=num_speculative_tokens)
    return SimpleNamespace(
        additional_config={},
        attention_config=SimpleNamespace(hisparse_config=None),
        cache_config=cache,
        compilation_config=SimpleNamespace(static_forward_context={}),
        kv_transfer_config=None,
        model_config=model,
        num_speculative_tokens=num_speculative_tokens,
        parallel_config=SimpleNamespace(tensor_parallel_size=1, decode_context_parallel_size=1),
        scheduler_config=SimpleNamespace(disable_hybrid_kv_cache_manager=False),
        speculative_config=speculative if num_speculative_tokens else None,
    )


def plan(
    family: str,
    dimensions: dict[str, Any],
    lengths: Sequence[int],
    num_speculative_tokens: int = 0,
    ranks: int = 1,
) -> list[dict[str, Any]]:
    """Return the groups of a model, each with what vLLM passes to its `BlockTables`.

    Args:
        family: how layers are built from dimensions, a key of `_FAMILIES`.
        dimensions: the model's, by their names in its published config.
        lengths: values of `max_model_len`; a group has a width for each.
        num_speculative_tokens: drafted tokens in a step.
        ranks: ranks that share the tokens of a sequence (decode context parallelism).
    """
    config = _config(family, dimensions, num_speculative_tokens)
    config.parallel_config.decode_context_parallel_size = ranks
    layers = config.compilation_config.static_forward_context
    _real("vllm.config").get_current_vllm_config = lambda: SimpleNamespace(
        compilation_config=SimpleNamespace(static_forward_context={})
    )
    if family in _STATEFUL_MODELS:
        module, name = _STATEFUL_MODELS[family]
        model = getattr(_real(module), name)
        _real("vllm.model_executor.models").ModelRegistry = SimpleNamespace(
            resolve_model_cls=lambda *given, **options: (model, name)
        )
    layers.update(_FAMILIES[family](dimensions, config))
    _real("vllm.platforms.interface").Platform.update_block_size_for_backend(config)
    specs = {}
    backends = []
    customize = _real("vllm.v1.worker.utils").customize_attention_spec
    interface = _real("vllm.v1.kv_cache_interface")
    for name, layer in layers.items():
        spec = layer.get_kv_cache_spec(config)
        if isinstance(spec, interface.AttentionSpec):
            backends.append(layer.get_attn_backend())
            spec = customize(backends[-1], spec)
        _refuse_stand_ins(name, spec)
        specs[name] = spec
    utilities = _real(f"{_BACKENDS}.utils")
    supported = utilities.get_supported_kv_cache_layouts(dict.fromkeys(backends))
    config.cache_config.kv_cache_layout = supported[0].name
    groups = _real("vllm.v1.core.kv_cache_planning").get_kv_cache_groups(config, specs)
    return [_described(group.kv_cache_spec, config, lengths) for group in groups]


def _refuse_stand_ins(name: str, spec: Any) -> None:
    """Refuse a spec with a field that no code of vLLM's has computed.

    Raises:
        TypeError: naming the layer and the field.
    """
    for field in fields(spec):
        value = getattr(spec, field.name)
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, StandIn):
                raise TypeError(f"{field.name} of {name} is a stand-in; make its module real")


def _described(spec: Any, config: Any, lengths: Sequence[int]) -> dict[str, Any]:
    """Return the arguments for one group that `GPUModelRunner` computes from its spec."""
    interface = _real("vllm.v1.kv_cache_interface")
    width_of = _real("vllm.v1.worker.block_table").get_block_table_width
    is_uniform = isinstance(spec, interface.UniformTypeKVCacheSpecs)
    layer = spec.first_spec if is_uniform else spec
    has_window = isinstance(layer, interface.SlidingWindowSpec)
    widths = [
        width_of(
            spec.max_num_blocks_per_req(config, length),
            spec.block_size,
            token_alignment=spec.block_table_token_alignment,
        )
        for length in lengths
    ]
    return {
        "kind": type(layer).__name__,
        "block_size": spec.block_size,
        "widths": widths,
        "token_alignment": spec.block_table_token_alignment,
        "spare_blocks": getattr(layer, "num_speculative_blocks", 0),
        "reach": layer.num_retained_tokens if has_window else 0,
        "slot_mapping_enabled": layer.uses_slot_mapping,
        "dcp_sharded": spec.dcp_sharded,
    }


def main() -> None:
    """Answer the requests on stdin."""
    prepare(Path(sys.argv[1]))
    requests = json.load(sys.stdin)
    json.dump([plan(**request) for request in requests], sys.stdout)


if __name__ == "__main__":
    main()
