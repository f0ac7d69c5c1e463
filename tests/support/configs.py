"""Configs as hypothesis makes them: right ones, nearly right ones, and any others."""

from __future__ import annotations

from hypothesis import strategies as st

from bt_bench.config.validation import Vocabulary
from bt_bench.protocol import default_suite

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 70),
    st.sampled_from([10**6, 10**12, 10**400, 16.0, 0.5, 1e300, float("nan"), float("inf")]),
    st.sampled_from(["uniform", "batch", "spread", "trace", "azure_conv", "identity", "{groups}"]),
    st.sampled_from(["~no.such.user/x", "x" * 5000]),
    st.text(max_size=5),
)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3), max_leaves=4)
names = st.one_of(st.sampled_from(Vocabulary(default_suite()).names), st.text(max_size=4))
parameters = st.dictionaries(names, values, max_size=4)
PLAN_KEYS = ["rounds", "seed", "precision_percent", "launch_paths", "loads", "l2", "control"]
plan_values = st.one_of(
    scalars, st.lists(st.one_of(scalars, st.sampled_from(["jit", "graph", "busy", "hot"])))
)
axes = st.dictionaries(names, st.lists(scalars, max_size=3), max_size=3)
good_case = {"name": "a", "requests": 2, "tokens": 4}
cases = st.one_of(
    values,
    st.builds(
        lambda own, product, zipped: {**good_case, **own, "product": product, "zip": zipped},
        parameters,
        axes,
        axes,
    ),
    parameters.map(lambda own: {**good_case, **own}),
    parameters.map(lambda own: {"name": "t", "workload": "trace", "trace": "azure_conv"} | own),
    st.sampled_from([1, 2, 16]).map(lambda groups: {"name": "b", "groups": groups} | good_case),
)
documents = st.fixed_dictionaries(
    {"cases": st.lists(cases, max_size=3)},
    optional={
        "name": scalars,
        "description": scalars,
        "variants": values,
        "operations": values,
        "plan": st.one_of(values, st.dictionaries(st.sampled_from(PLAN_KEYS), plan_values)),
        "defaults": st.one_of(values, parameters),
    },
)
