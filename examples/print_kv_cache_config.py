"""Print the tables of a running vLLM 0.33.0 as a `kv_cache_config` of bt-bench.

    VLLM_ALLOW_INSECURE_SERIALIZATION=1 python print_kv_cache_config.py MODEL > tables.json

Change the arguments of `LLM` to those that you serve the model with. vLLM sends the function below
to its workers by pickle, which the variable allows.
"""

import json
import sys


def tables_of(worker):
    """Return what a worker's block tables were built with."""
    import vllm

    runner = worker.model_runner
    tables = runner.block_tables
    groups = [
        {
            "block_size": int(tables.block_sizes[group]),
            "width": int(tables.block_tables[group].gpu.shape[1]),
            "reach": int(tables.sliding_window_reach[group]),
            "slot_mapping_enabled": bool(tables.slot_mapping_enabled[group]),
            "dcp_sharded": bool(tables.dcp_sharded[group]),
        }
        for group in range(tables.num_kv_cache_groups)
    ]
    return {
        "format": "bt-bench kv_cache_config 1",
        "engine": "vllm",
        "release": vllm.__version__,
        "model": runner.model_config.model,
        "max_num_reqs": int(tables.max_num_reqs),
        "max_num_batched_tokens": int(tables.max_num_batched_tokens),
        "max_model_len": int(runner.max_model_len),
        "cp_size": int(tables.cp_size),
        "cp_rank": int(tables.cp_rank),
        "cp_interleave": int(tables.cp_interleave),
        "groups": groups,
    }


if __name__ == "__main__":
    from vllm import LLM

    engine = LLM(model=sys.argv[1])
    json.dump(engine.collective_rpc(tables_of)[0], sys.stdout, indent=1)
