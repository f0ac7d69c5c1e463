"""Generate with a local model, with vLLM's block tables and with the plugin, and compare.

    python examples/vllm_e2e.py --model DIR
    python examples/vllm_e2e.py --model DIR --prompts FILE --max-tokens 256 --repeats 5 --json OUT

Needs vLLM 0.33.0, `pip install bt-kernels` beside it, and a GPU. **We have not run it with a real
engine: the project's machines have none.** Tests run it with a stand-in for `vllm.LLM`.

Two processes generate one after the other, each with a new engine: the first with BT_KERNELS=off,
the second with BT_KERNELS=on. Temperature is 0, and token ids must be equal, one by one. If they
are not, a third process generates with `off` again. If vLLM differs from itself, the message says
so, and the comparison is void. Two times are printed: per output token, and on the host per step in
calls of the block tables. Each is a median over the repetitions, with the least and the greatest.
The engine runs in the process that generates (VLLM_ENABLE_V1_MULTIPROCESSING=0), so one GPU is
used. The first repetition is compared, and not timed.

Exit code: 0 if token ids are equal, 1 if not, 2 if the comparison is void or impossible.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

OFF, ON, SHADOW = "off", "on", "shadow"
METHODS = (
    *("append_block_ids", "apply_staged_writes", "gather_block_tables", "compute_slot_mappings"),
    *("get_dummy_block_tables", "get_dummy_slot_mappings", "settle"),
)
PROMPTS = (
    "The capital of France is",
    "Write a short story about a lighthouse keeper who finds a message in a bottle.",
    "Explain, step by step, how a binary search works.",
    "Summarize: " + "The river rose in spring, and the town moved its market uphill. " * 40,
    "1, 1, 2, 3, 5, 8, 13,",
    "Translate into German: The weather is better than it was yesterday.",
    "Continue: " + "alpha beta gamma delta " * 150,
    "def quicksort(values):",
)


class VoidError(Exception):
    """The comparison is void or impossible; the message gives the reason and the remedy."""


def main(arguments=None):
    """Compare, print the outcome, and return the exit code."""
    args = parse(arguments)
    try:
        if args.arm:
            write(args.result, {"error": None, **generate(args)})
            return 0
        check(args)
        found = compare(args)
    except VoidError as error:
        if args.arm:
            write(args.result, {"error": str(error)})
        else:
            sys.stderr.write(f"error: {error}\n")
        return 2
    sys.stdout.write("".join(f"{line}\n" for line in lines(found)))
    if args.json:
        write(args.json, found)
    return {"equal": 0, "different": 1, "void": 2}[found["outcome"]]


def parse(arguments):
    """Return the options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", required=True, type=Path, help="folder of a model")
    parser.add_argument("--prompts", type=Path, help="a prompt a line; default: eight of ours")
    parser.add_argument("--max-tokens", type=int, default=128, help="of each prompt")
    parser.add_argument("--repeats", type=int, default=5, help="timed repetitions")
    parser.add_argument("--mode", choices=(ON, SHADOW), default=ON, help="BT_KERNELS of the second")
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an argument of LLM; the value is JSON, or else a text: max_model_len=4096",
    )
    parser.add_argument("--json", type=Path, help="file for all that is printed, and token ids")
    parser.add_argument("--arm", choices=(OFF, ON, SHADOW), help=argparse.SUPPRESS)
    parser.add_argument("--result", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    for name in ("max_tokens", "repeats"):
        if getattr(args, name) < 1:
            parser.error(f"--{name.replace('_', '-')} is {getattr(args, name)}; expected 1 or more")
    return args


def check(args):
    """Find what is missing before an engine is built.

    Raises:
        VoidError: with what is missing, and what to do.
    """
    if importlib.util.find_spec("vllm") is None:
        raise VoidError(
            f"{sys.executable} has no vllm; expected vLLM 0.33.0 (pip install vllm==0.33.0)"
        )
    if importlib.util.find_spec("bt_kernels") is None:
        raise VoidError(f"{sys.executable} has no bt_kernels (pip install bt-kernels)")
    if not (args.model / "config.json").is_file():
        raise VoidError(
            f"--model {args.model} has no config.json; expected the folder of a model, as "
            "downloaded from a hub"
        )
    allowed = os.environ.get("VLLM_PLUGINS")
    if allowed is not None and "bt_kernels" not in allowed.split(","):
        raise VoidError(f"VLLM_PLUGINS={allowed!r} leaves out bt_kernels; add it, or unset it")
    prompts_of(args)
    options_of(args)
    if args.json is not None:
        try:
            args.json.touch()
        except OSError as error:
            raise VoidError(f"--json {args.json}: cannot be written: {error.strerror}") from None
        if args.json.is_dir():
            raise VoidError(f"--json {args.json} is a folder; expected a file")


def prompts_of(args):
    """Return the prompts.

    Raises:
        VoidError: when there are none.
    """
    if args.prompts is None:
        return list(PROMPTS)
    try:
        found = [line for line in args.prompts.read_text("utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise VoidError(
            f"--prompts {args.prompts}: {error}; expected a UTF-8 file with a prompt a line"
        ) from None
    if not found:
        raise VoidError(f"--prompts {args.prompts} is empty; expected a prompt a line")
    return found


def options_of(args):
    """Return the arguments of LLM beside the model.

    Raises:
        VoidError: when one has no value.
    """
    found = {}
    for given in args.option:
        name, equals, value = given.partition("=")
        if not (name.isidentifier() and equals):
            raise VoidError(f"--option {given!r}; expected NAME=VALUE, such as max_model_len=4096")
        try:
            found[name] = json.loads(value)
        except json.JSONDecodeError:
            found[name] = value
    return found


# One process, with one engine


def generate(args):
    """Generate with one engine; return token ids, times, and the plugin's counters.

    Raises:
        VoidError: when the plugin did not replace the tables, or fell back.
    """
    warnings = Warnings()
    logging.getLogger("bt_kernels.plugin").addHandler(warnings)
    import vllm

    if args.arm != OFF:
        from bt_kernels.engines import plugin

        plugin.load()  # as vLLM does later: what it warns of is found before an engine is built
        if warnings.texts:
            raise VoidError(f"the plugin does not act: {' '.join(warnings.texts)}")
    host = time_calls(args.arm)
    engine = vllm.LLM(model=str(args.model), **{"seed": 0, **options_of(args)})
    sampling = vllm.SamplingParams(temperature=0, max_tokens=args.max_tokens, ignore_eos=True)
    prompts, repetitions = prompts_of(args), []
    for _ in range(args.repeats + 1):
        host.clear()
        began = time.perf_counter()
        outputs = engine.generate(prompts, sampling)
        seconds = time.perf_counter() - began
        ids = [list(output.outputs[0].token_ids) for output in outputs]
        num_tokens = sum(map(len, ids))
        if not num_tokens:
            raise VoidError("the engine generated no token; choose other prompts")
        repetitions.append(
            {
                "token_ids": ids,
                "us_per_output_token": 1e6 * seconds / num_tokens,
                "host_us_per_step": host.us_per_step(),
                "steps": host.steps,
            }
        )
    found = {"release": vllm.__version__, "repetitions": repetitions, "counters": None}
    if args.arm == OFF:
        return found
    counts = plugin.counters()
    if not counts["tables"]:
        why = " ".join(warnings.texts) or (
            "its entry point was not loaded, the engine has another model runner, or another "
            "process has the tables"
        )
        raise VoidError(f"the plugin replaced no block tables: {why}. Counters: {counts}")
    used = counts["compared"] if args.arm == SHADOW else counts["fused"] + counts["deferred"]
    if not used or counts["failures"]:
        raise VoidError(
            f"vLLM's class made the steps: {' '.join(warnings.texts) or 'no step was ours'}. "
            f"Counters: {counts}"
        )
    return found | {"counters": counts}


class Warnings(logging.Handler):
    """Collects the plugin's warnings."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.texts = []

    def emit(self, record):
        """Keep the text."""
        self.texts.append(record.getMessage())


class HostTimes:
    """Host time in calls of the block tables, outermost calls only."""

    def __init__(self):
        self.inside = False
        self.clear()

    def clear(self):
        """Begin a repetition."""
        self.nanoseconds = self.steps = 0

    def us_per_step(self):
        """Return µs per step that applies writes, or None."""
        return self.nanoseconds / self.steps / 1000 if self.steps else None

    def timed(self, name, method):
        """Return a method that is timed."""

        def call(*args, **kwargs):
            if self.inside:
                return method(*args, **kwargs)
            self.inside = True
            began = time.perf_counter_ns()
            try:
                return method(*args, **kwargs)
            finally:
                self.nanoseconds += time.perf_counter_ns() - began
                self.steps += name == "apply_staged_writes"
                self.inside = False

        return call


def time_calls(arm):
    """Time the calls of the class that the engine will use, in both arms alike.

    Shadow mode makes every call twice and is slow, so its calls are not timed.
    """
    if arm == OFF:
        from vllm.v1.worker.gpu.block_table import BlockTables as Tables
    else:
        from bt_kernels.engines.plugin.deferring import DeferringTables as Tables
    host = HostTimes()
    for name in METHODS if arm != SHADOW else ():
        if hasattr(Tables, name):
            setattr(Tables, name, host.timed(name, getattr(Tables, name)))
    return host


# Both


def compare(args):
    """Generate with each arm in a process of its own; return all that was found.

    Raises:
        VoidError: when one fails.
    """
    off, on = run(args, OFF), run(args, args.mode)
    found = {"mode": args.mode, "off": off, "on": on, "outcome": "equal", "difference": None}
    difference = first_difference(off, on)
    if difference is not None:
        again = first_difference(off, run(args, OFF))
        found |= {"outcome": "different" if again is None else "void", "difference": difference}
    return found


def run(args, arm):
    """Generate in a new process; return what it found.

    Raises:
        VoidError: when it fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        words = ["--model", args.model, "--max-tokens", args.max_tokens, "--repeats", args.repeats]
        words += ["--prompts", args.prompts] if args.prompts else []
        words += [word for given in args.option for word in ("--option", given)]
        environment = {
            name: value
            for name, value in os.environ.items()
            if name not in ("BT_KERNELS_COUNTERS", "BT_KERNELS_RECORD")  # they would cost time
        }
        environment |= {"BT_KERNELS": arm, "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
        done = subprocess.run(
            [sys.executable, __file__, *map(str, words), "--arm", arm, "--result", str(result)],
            env=environment,
            check=False,
        )
        found = json.loads(result.read_text("utf-8")) if result.is_file() else {}
    if not found:
        raise VoidError(
            f"the process with BT_KERNELS={arm} ended with exit code {done.returncode}; its "
            "messages are above"
        )
    if found["error"]:
        raise VoidError(f"with BT_KERNELS={arm}: {found['error']}")
    return found


def first_difference(one, other):
    """Return the first place where token ids differ, or None."""
    for repetition, pair in enumerate(zip(one["repetitions"], other["repetitions"], strict=True)):
        for prompt, (ids, others) in enumerate(
            zip(*(each["token_ids"] for each in pair), strict=True)
        ):
            if ids == others:
                continue
            pairs = enumerate(zip(ids, others, strict=False))
            shorter = min(len(ids), len(others))
            place = next((place for place, (own, its) in pairs if own != its), shorter)
            return {
                "repetition": repetition,
                "prompt": prompt,
                "token": place,
                "off": ids[place : place + 1],
                "on": others[place : place + 1],
            }
    return None


def lines(found):
    """Yield the outcome in lines."""
    off, on = found["off"], found["on"]
    counted = [len(ids) for each in off["repetitions"] for ids in each["token_ids"]]
    yield (
        f"vLLM {off['release']}: {len(counted):,} generations, {sum(counted):,} tokens, with "
        f"BT_KERNELS={OFF} and {found['mode']}"
    )
    difference = found["difference"]
    if difference is None:
        yield "All token ids are equal."
    else:
        yield (
            f"Token ids differ: repetition {difference['repetition']}, prompt "
            f"{difference['prompt']}, token {difference['token']}: {difference['off']} without, "
            f"{difference['on']} with the plugin."
        )
        yield (
            "vLLM alone does not repeat its own token ids either, so this comparison is void."
            if found["outcome"] == "void"
            else "vLLM alone repeats its token ids, so the plugin is the cause."
        )
    yield f"{'':20}{'without':>36}{'with':>36}"
    for name, title in (
        ("us_per_output_token", "µs per output token"),
        ("host_us_per_step", "host µs per step"),
    ):
        yield f"{title:20}{spread(off, name):>36}{spread(on, name):>36}"
    counts = on["counters"]
    shown = ("steps", "launches", "fused", "compared", "differences", "settled")
    yield "plugin: " + ", ".join(f"{name} {counts[name]}" for name in shown if name in counts)


def spread(arm, name):
    """Return the median, least and greatest of the timed repetitions."""
    values = [each[name] for each in arm["repetitions"][1:] if each[name] is not None]
    if not values:
        return "–"
    return f"{statistics.median(values):,.1f} ({min(values):,.1f} to {max(values):,.1f})"


def write(path, found):
    """Write a file of JSON."""
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
