"""Everything that is refused, and with which words."""

from __future__ import annotations

import pytest

from bt_bench.base.errors import UsageError
from bt_bench.config.load import load_config

TOP_KEYS = "name, description, suite, kernels, variants, operations, plan, gate, defaults, cases"
GOOD = "{name: a, requests: 1, tokens: 2}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *[
            (
                empty,
                "my.yaml:1:1: the config is empty; expected at least 'cases', a list of named "
                "workloads",
            )
            for empty in ("", "# nothing\n", "---\n")
        ],
        (
            "cases: [1, 2\nname: x",
            "my.yaml:2:5: not valid YAML: expected ',' or ']', but got ':'; check "
            "indentation, quotes and brackets up to here",
        ),
        (
            "cases:\n\t- name: x",
            "my.yaml:2:1: not valid YAML: found character '\\t' that cannot start any token; check "
            "indentation, quotes and brackets up to here",
        ),
        (
            "name: a: b",
            "my.yaml:1:8: not valid YAML: mapping values are not allowed here; check indentation, "
            "quotes and brackets up to here",
        ),
        (
            "name: a\n---\nname: b",
            "my.yaml:2:1: a second document begins here; expected one config in a file; give it a "
            "file of its own, or remove the line that separates them",
        ),
        (
            "name: *other",
            "my.yaml:1:7: not valid YAML: found undefined alias 'other'; check indentation, quotes "
            "and brackets up to here",
        ),
        (
            "[" * 5000,
            "my.yaml:1:101: values are nested too deeply; expected at most 100 levels, counting "
            "those that aliases and merges lead to",
        ),
        (
            "- a\n- b",
            f"my.yaml:1:1: the config is ['a', 'b']; expected a mapping with the keys {TOP_KEYS}",
        ),
        ("12", f"my.yaml:1:1: the config is 12; expected a mapping with the keys {TOP_KEYS}"),
        ("%YAML 1.9\n---\na: 1", "my.yaml:1:1: not valid YAML; check its directives and escapes"),
        ("name: !py/x a", "my.yaml:1:7: tag '!py/x' is not supported; remove it"),
        ("name: !!binary aGk=", "my.yaml:1:7: tag 'binary' is not supported; remove it"),
        ("1: a", "my.yaml:1:1: key 1 is not text; put it in quotes"),
        ("? [a]\n: b", "my.yaml:1:3: key ['a'] is not text; put it in quotes"),
        (
            "plan: &plan\n  seed: *plan",
            "my.yaml:1:7: a value contains an alias of itself; remove the alias",
        ),
        (
            "<<: 3",
            "my.yaml:1:5: '<<' merges 3; expected a mapping or a list of them",
        ),
        (
            f"cases: [{{name: a, requests: {'9' * 5000}, tokens: 2}}]",
            f"my.yaml:1:29: '{'9' * 58}… is not a valid int; expected a number or text",
        ),
        (
            'name: "a\\x1bb"',
            "my.yaml:1:7: text has a control character; remove it",
        ),
    ],
)  # fmt: skip
def test_yaml(error_of, text, expected):
    assert error_of(text) == expected


def test_aliases_of_aliases(error_of):
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    assert error_of("\n".join(lines)) == (
        "my.yaml:1:16: the config has more than 200,000 values, counting each use of an alias; "
        "write fewer"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("case: []", "my.yaml:1:1: unknown key 'case'; did you mean 'cases'?\n"
         "my.yaml:1:1: 'cases' is missing; expected a list of one or more cases"),
        ("x: 1\ncases: [GOOD]", f"my.yaml:1:1: unknown key 'x'; expected one of {TOP_KEYS}"),
        ("name: a\nname: b\ncases: [GOOD]",
         "my.yaml:2:1: key 'name' is given twice; the first is at my.yaml:1:1; remove one"),
        ("cases: []", "my.yaml:1:8: cases is []; expected a list of one or more cases"),
        ("cases:\n", "my.yaml:1:1: cases is null; expected a list of one or more cases"),
        ("cases: {a: 1}", "my.yaml:1:8: cases is {a: 1}; expected a list of one or more cases"),
        ("cases: [a]",
         "my.yaml:1:9: case is 'a'; expected a mapping with a name and parameters"),
        ("name: a/b\ncases: [GOOD]", "my.yaml:1:7: name is 'a/b'; expected letters, digits and "
         "_ . = - (1 to 200 of them)"),
        ("name: 3\ncases: [GOOD]", "my.yaml:1:7: name is 3; expected text; put it in quotes"),
        ("description: [a]\ncases: [GOOD]", "my.yaml:1:14: description is ['a']; expected text"),
        ("variants: []\ncases: [GOOD]",
         "my.yaml:1:11: variants is []; expected a list of one or more names, or leave 'variants' "
         "out for baseline, fused, fused_apply, fused_gather_slots, one_launch, "
         "one_launch_graph"),
        ("variants: fused\ncases: [GOOD]",
         "my.yaml:1:11: variants is 'fused'; expected a list of one or more names, or leave "
         "'variants' out for baseline, fused, fused_apply, fused_gather_slots, one_launch, "
         "one_launch_graph"),
        ("variants: [a, 1, a]\ncases: [GOOD]",
         "my.yaml:1:15: variants has 1; expected a name\n"
         "my.yaml:1:18: variants has 'a' twice; remove one"),
        ("operations: [steps]\ncases: [GOOD]",
         "my.yaml:1:14: unknown operation 'steps'; did you mean 'step'?"),
        ("operations: [scatter, slots]\ncases: [GOOD]",
         "my.yaml:1:14: unknown operation 'scatter'; did you mean 'gather'?"),
        ("plan: 5\ncases: [GOOD]", "my.yaml:1:7: plan is 5; expected a mapping of rounds, "
         "min_rounds, precision_percent, case_seconds, warmup_rounds, instances, launch_paths, "
         "loads, l2, control, profile_rounds, graph_rounds, check_rounds, hang_seconds, seed"),
        ("plan: {l2: hot}\ncases: [GOOD]",
         "my.yaml:1:12: l2 is 'hot'; expected one or more of hot, cold, in a list"),
        ("plan: {loads: []}\ncases: [GOOD]",
         "my.yaml:1:15: loads is []; expected one or more of idle, busy, in a list"),
        ("plan: {launch_paths: [jit, grph, 3]}\ncases: [GOOD]",
         "my.yaml:1:28: launch_paths[1] is 'grph'; expected one or more of jit, compiled, direct, "
         "graph, in a list\n"
         "my.yaml:1:34: launch_paths[2] is 3; expected one or more of jit, compiled, direct, "
         "graph, in a list"),
        ("plan: {loads: [idle, idle]}\ncases: [GOOD]",
         "my.yaml:1:22: loads has 'idle' twice; remove one"),
        ("plan: {case_seconds: 0, control: 1}\ncases: [GOOD]",
         "my.yaml:1:22: case_seconds is 0; expected a number above 0 and up to 86400\n"
         "my.yaml:1:34: control is 1; expected true or false"),
        ("plan: {rounds: 0, warmups: 1}\ncases: [GOOD]",
         "my.yaml:1:16: rounds is 0; expected a whole number from 1 to 100000\n"
         "my.yaml:1:19: unknown key 'warmups' in plan; did you mean 'warmup_rounds'?"),
        ("defaults: [a]\ncases: [GOOD]",
         "my.yaml:1:11: defaults is ['a']; expected a mapping of parameters"),
        ("defaults:\n  product: {groups: [1]}\ncases: [GOOD]",
         "my.yaml:2:3: unknown parameter 'product'; expected one of workload, model, "
         "kv_cache_config, groups, block_size, widths, max_num_reqs, max_num_batched_tokens, "
         "max_model_len, idx_mapping_dtype, pad_requests, "
         "disabled_groups, sliding_window, cp_size, cp_rank, cp_interleave, unsharded_groups, "
         "custom_outputs, layout_source, seed, requests, tokens, staged_writes, dummy_requests, "
         "mapping, tokens_per_request, prefills, prefill_tokens, min_length, file, window.name, "
         "window.at, window.steps, spread, longest, writes, written_ids, trace, columns.preset, "
         "columns.arrival, columns.prompt, columns.output, columns.time, columns.drop_failed, "
         "columns.hashes, columns.hash_tokens, columns.session, columns.delay, part.begin, "
         "part.end, part.requests, rate, base_ms, per_token_us, num_blocks, prefix_caching, "
         "window, columns, part"),
        ("defaults:\n  rate: 3\ncases: [GOOD]", "my.yaml:2:3: 'rate' is a parameter of trace "
         "workloads, and no case is one; remove it"),
    ],
)  # fmt: skip
def test_top_level(error_of, text, expected):
    assert error_of(text.replace("GOOD", GOOD)) == expected


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("requests: 1, tokens: 2", "1:9: case has no 'name'; give it one"),
        ("name: 7, requests: 1, tokens: 2", "1:16: name is 7; expected text; put it in quotes"),
        ("name: '', requests: 1, tokens: 2", "1:16: name is ''; expected letters, digits and "
         "_ . = - (1 to 200 of them), or parameters in braces: {groups}"),
        ("name: a b, requests: 1, tokens: 2", "1:16: name is 'a b'; expected letters, digits and "
         "_ . = - (1 to 200 of them), or parameters in braces: {groups}"),
        (f"name: {'a' * 201}, requests: 1, tokens: 2",
         f"1:16: name '{'a' * 58}… has 201 characters; expected at most 200"),
        ("name: 'a{group}', requests: 1, tokens: 2",
         "1:16: name 'a{group}' has an unknown placeholder 'group'; did you mean 'groups'?"),
        ("name: 'a{rate}', requests: 1, tokens: 2",
         "1:16: name 'a{rate}' has the placeholder 'rate', a parameter of trace workloads; "
         "remove it"),
        ("name: a, tokens: 2",
         "1:9: 'requests' is missing; expected a whole number from 1 to 16384"),
        ("name: a, request: 1, tokens: 2, requests: 1",
         "1:19: unknown key 'request'; did you mean 'requests'?"),
        ("name: a, requests: many, tokens: 2",
         "1:29: requests is 'many'; expected a whole number from 1 to 16384"),
        ("name: a, requests: '32', tokens: 32", "1:29: requests is '32'; expected a whole number "
         "from 1 to 16384; remove the quotes"),
        ("name: a, requests: true, tokens: 2",
         "1:29: requests is true; expected a whole number from 1 to 16384"),
        ("name: a, requests: 32.0, tokens: 32",
         "1:29: requests is 32.0; expected a whole number from 1 to 16384; write 32"),
        ("name: a, requests: 1.5, tokens: 2",
         "1:29: requests is 1.5; expected a whole number from 1 to 16384"),
        ("name: a, requests: null, tokens: 2",
         "1:29: requests is null; expected a whole number from 1 to 16384"),
        ("name: a, requests: 0, tokens: 2",
         "1:29: requests is 0; expected a whole number from 1 to 16384"),
        ("name: a, requests: -4, tokens: 2",
         "1:29: requests is -4; expected a whole number from 1 to 16384"),
        ("name: a, requests: .nan, tokens: 2",
         "1:29: requests is .nan; expected a whole number from 1 to 16384"),
        ("name: a, requests: [1, 2], tokens: 2",
         "1:29: requests is [1, 2]; expected a whole number from 1 to 16384; several values to "
         "sweep over belong under 'product' or 'zip'"),
        (f"name: a, requests: {10**50}, tokens: 2", "1:29: requests is a number of more than 40 "
         "digits; expected a whole number from 1 to 16384"),
        ("name: a, requests: 1, tokens: 99999999",
         "1:40: tokens is 99999999; expected a whole number from 1 to 4194304; its tables "
         "would need 766.9 MiB per variant"),
        ("name: a, requests: 1, tokens: 2, pad_requests: 1",
         "1:57: pad_requests is 1; expected true or false"),
        ("name: a, requests: 1, tokens: 2, mapping: random",
         "1:52: mapping is 'random'; expected one of identity, shuffled"),
        ("name: a, requests: 1, tokens: 2, block_size: 0",
         "1:55: block_size is 0; expected a whole number from 1 to 4194304 or a list of these, "
         "not empty"),
        ("name: a, requests: 1, tokens: 2, block_size: [16, -1, a]",
         "1:60: block_size[1] is -1; expected a whole number from 1 to 4194304 or a list of these, "
         "not empty\n"
         "my.yaml:1:64: block_size[2] is 'a'; expected a whole number from 1 to 4194304 or a list "
         "of these, not empty"),
        ("name: a, requests: 1, tokens: 2, block_size: []",
         "1:55: block_size is []; expected a whole number from 1 to 4194304 or a list of these, "
         "not empty; several values to sweep over belong under 'product' or 'zip'"),
        ("name: a, requests: 1, tokens: 2, block_size: [1, 2], groups: 3",
         "1:55: block_size lists 2 sizes for 3 groups; expected one per group, one size for all, "
         "or no 'groups'"),
        ("name: a, requests: 1, tokens: 2, model: gpt-oss",
         "1:50: unknown model 'gpt-oss'; did you mean 'gpt-oss-120b'?"),
        ("name: a, requests: 1, tokens: 2, model: qwen3-32b, groups: 2",
         "1:69: groups is given beside model 'qwen3-32b', which sets groups and block sizes; "
         "remove one of the two"),
        ("name: a, requests: 1, tokens: 2, groups: 2, disabled_groups: [1, 2]",
         "1:71: disabled_groups has group 2 of 2 groups; they count from 0"),
        ("name: a, requests: 1, tokens: 2, unsharded_groups: [-1]",
         "1:62: unsharded_groups[0] is -1; expected a list, each a whole number from 0 to 63"),
        ("name: a, requests: 1, tokens: 2, disabled_groups: 0",
         "1:60: disabled_groups is 0; expected a list, each a whole number from 0 to 63"),
        ("name: a, requests: 1, tokens: 2, unsharded_groups: [1]",
         "1:61: unsharded_groups has group 1 of 1 group; they count from 0"),
        ("name: a, requests: 1, tokens: 2, groups: 2, sliding_window: [1, 2, 3]",
         "1:70: sliding_window lists 3 reaches for 2 groups; expected one per group, or one for "
         "all"),
        ("name: a, requests: 1, tokens: 2, sliding_window: -1",
         "1:59: sliding_window is -1; expected a whole number from 0 to 16777216 or a list of "
         "these, not empty"),
        ("name: a, requests: 1, tokens: 2, cp_size: 2, cp_rank: 2",
         "1:64: cp_rank is 2; expected less than 'cp_size', 2"),
        ("name: a, requests: 1, tokens: 2, cp_rank: 1",
         "1:52: cp_rank is 1; expected less than 'cp_size', 1"),
        ("name: a, requests: 1, tokens: 2, sliding_window: 9, cp_size: 2",
         "1:59: sliding_window is given beside cp_size 2, which turns it off, since a column then "
         "is not a range of consecutive tokens; remove one of the two"),
        ("name: a, requests: 1, tokens: 2, block_size: [16, 6], cp_size: 2, cp_interleave: 4",
         "1:91: cp_interleave is 4; expected a divisor of the block size of every sharded group; "
         "group 1 has 6"),
        ("name: a, workload: trace, trace: azure_conv, dummy_requests: 1",
         "1:55: 'dummy_requests' is a parameter of uniform, batch and spread workloads, and this "
         "case is trace; remove it"),
        ("name: a, workload: bach, requests: 1",
         "1:29: workload is 'bach'; did you mean 'batch'?"),
        ("name: a, workload: 3, requests: 1",
         "1:29: workload is 3; expected one of uniform, batch, recorded, spread, trace"),
        ("name: a, workload: batch, requests: 1, tokens: 2",
         "1:49: 'tokens' is a parameter of uniform and spread workloads, and this case is batch; "
         "remove it"),
        ("name: a, requests: 1, tokens: 2, window: {steps: 3}",
         "1:52: 'window.steps' is a parameter of recorded and trace workloads, and this case is "
         "uniform; remove it"),
        ("name: a, workload: trace, trace: azure_conv, rate: .inf",
         "1:61: rate is .inf; expected a number above 0 and up to 10000"),
        ("name: a, workload: trace, trace: azure_conv, rate: 0",
         "1:61: rate is 0; expected a number above 0 and up to 10000"),
        ("name: a, workload: trace, trace: ''", "1:43: trace is ''; expected text, not empty"),
        ("name: a, workload: trace, trace: azure_conv, window: 5",
         "1:63: window is 5; expected a mapping of name, at, steps"),
        ("name: a, workload: trace, trace: azure_conv, window: {step: 5}",
         "1:64: unknown key 'step' in window; did you mean 'steps'?"),
        ("name: a, workload: trace, trace: azure_conv, window: {at: begin}",
         "1:68: window.at is 'begin'; expected one of start, middle, busiest or a whole number of "
         "0 or more"),
        ("name: a, workload: trace, trace: azure_conv, window: {at: 3}, window.at: 4",
         "1:72: 'window.at' is given twice; the first is at my.yaml:1:64; remove one"),
        ("name: a, tokens: 2, product: {requests: []}",
         "1:50: axis 'requests' is empty; expected one or more values, or remove the axis"),
        ("name: a, tokens: 2, product: {requests: 3}",
         "1:50: axis 'requests' is 3; expected a list of values, or a range such as 1..8"),
        ("name: a, tokens: 2, product: [requests]", "1:39: product is ['requests']; expected a "
         "mapping of parameters, each with a list or a range of values"),
        ("name: a, tokens: 2, requests: 1, product: {grups: [1]}",
         "1:53: unknown parameter 'grups'; did you mean 'groups'?"),
        ("name: a, tokens: 2, requests: 1, product: {requests: [1, 2]}",
         "1:53: axis 'requests' is also given as a fixed parameter at my.yaml:1:30; remove one"),
        ("name: a, tokens: 2, product: {requests: [1]}, zip: {requests: [1]}",
         "1:62: axis 'requests' is under 'product' as well as 'zip'; remove one"),
        ("name: a, zip: {requests: [1, 2], tokens: [1, 2, 3]}",
         "1:43: zipped axis 'tokens' has 3 values and 'requests' has 2; expected equally many, or "
         "put one under 'product'"),
        ("name: a, tokens: 4, product: {requests: [1, many]}",
         "1:54: requests is 'many'; expected a whole number from 1 to 16384"),
        ("name: a, tokens: 4, product: {requests: [1, 1]}",
         "1:16: the axes give the case name 'a-requests=1' twice; remove the repeated value"),
    ],
)  # fmt: skip
def test_case(error_of, case, expected):
    assert error_of(f"cases: [{{{case}}}]") == f"my.yaml:{expected}"


def test_case_name_twice(error_of):
    assert error_of(f"cases:\n- {GOOD}\n- {GOOD}") == (
        "my.yaml:3:10: case name 'a' is given twice; the first is at my.yaml:2:10; rename one"
    )
    text = """\
    cases:
      - {name: "a-seed=1", requests: 1, tokens: 2}
      - {name: a, requests: 1, tokens: 2, product: {seed: [0, 1]}}
    """
    assert error_of(text) == (
        "my.yaml:3:12: case name 'a-seed=1' is given twice; the first is at my.yaml:2:12; "
        "rename one"
    )


def test_error_in_defaults_is_located_there_once(error_of):
    text = f"""\
    defaults:
      max_model_len: 0
      workload: uniform
    cases: [{GOOD}, {GOOD.replace("a,", "b,")}]
    """
    assert error_of(text) == (
        "my.yaml:2:18: max_model_len is 0; expected a whole number from 1 to 16777216"
    )


def test_options_that_no_longer_fit_are_located_where_they_are(error_of):
    text = """\
    defaults: {groups: 4, disabled_groups: [3]}
    cases:
      - {name: a, requests: 1, tokens: 2, groups: 2}
      - {name: b, requests: 1, tokens: 2, product: {cp_size: [1, 2]}, sliding_window: 9}
    """
    assert [line.partition(", ")[0] for line in error_of(text).splitlines()] == [
        "my.yaml:1:40: disabled_groups has group 3 of 2 groups; they count from 0",
        "my.yaml:4:83: sliding_window is given beside cp_size 2",
    ]


def test_parameters_that_do_not_go_together(error_of):
    assert error_of("cases: [{name: a, requests: 8, tokens: 9000}]") == (
        "my.yaml:1:9: case 'a': 'tokens' is 9000; expected at most 'max_num_batched_tokens', 8192"
    )


@pytest.mark.parametrize(
    ("trace", "reason"),
    [
        ("~no.such.user/x.csv", "/~no.such.user/x.csv' is not a file; expected "),
        ("x" * 5000, "'trace' is not a usable path: File name too long"),
    ],
)
def test_path_of_a_trace(error_of, trace, reason):
    error = error_of(f"cases: [{{name: a, workload: trace, trace: {trace}}}]")
    assert error.startswith("my.yaml:1:9: case 'a': ")
    assert reason in error


def test_tables_that_no_machine_holds(error_of):
    sizes = "groups: 64, block_size: 1, max_model_len: 16777216, max_num_reqs: 16384"
    assert error_of(f"cases: [{{name: a, requests: 1, tokens: 2, {sizes}}}]") == (
        "my.yaml:1:9: case 'a': a variant needs 128.0 TiB of memory; expected at most 256 GiB; "
        "use smaller max_num_reqs, max_model_len or groups, or raise block_size"
    )


def test_too_many_cases(error_of):
    values = list(range(1000))
    axes = f"{{seed: {values}, tokens: {values}, requests: {values}}}"
    assert error_of(f"cases:\n- {{name: a, product: {axes}}}") == (
        "my.yaml:2:3: the config has 1,000,000,000 cases up to here; expected at most 100,000 in "
        "all; shorten the axes"
    )


def test_all_errors_in_the_order_of_the_file(error_of):
    text = """\
    plan: {rounds: 0}
    operations: [all]
    colour: red
    defaults: {groups: 0}
    cases:
      - {name: a, requests: many, tokens: 2}
      - {name: a, requests: 1, tokens: 2, tokens: 3}
    """
    assert [line.partition("; ")[0] for line in error_of(text).splitlines()] == [
        "my.yaml:1:16: rounds is 0",
        "my.yaml:2:14: unknown operation 'all'",
        "my.yaml:3:1: unknown key 'colour'",
        "my.yaml:4:20: groups is 0",
        "my.yaml:6:25: requests is 'many'",
        "my.yaml:7:39: key 'tokens' is given twice",
    ]


def test_twenty_errors_are_shown(error_of):
    lines = error_of("\n".join(f"x{i}: 1" for i in range(30))).splitlines()
    assert len(lines) == 21
    assert lines[20] == "… and 11 more errors"


def test_absurd_sizes_say_what_they_would_need(tmp_path):
    path = tmp_path / "my.yaml"
    path.write_text("cases:\n  - {name: a, requests: 4000000, tokens: 8}\n")
    with pytest.raises(UsageError) as caught:
        load_config(path)
    assert str(caught.value) == (
        f"{path}:2:25: requests is 4000000; expected a whole number from 1 to 16384; "
        "its tables would need 15.26 GiB per variant"
    )
