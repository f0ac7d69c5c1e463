"""`bt-bench env`."""

from __future__ import annotations

from typing import Any

from bt_bench.base.errors import ExitCode
from bt_bench.base.extras import missing_packages, needs_packages
from bt_bench.cli.exits import say
from bt_bench.cli.options import DeviceOption, JsonOption, chosen_device, print_json, resolve_device


def env(device: DeviceOption = None, as_json: JsonOption = False) -> ExitCode:
    """Show the machine and the versions that a result would be labelled with.

    Without torch, Triton or the kernels, shows what is known without them.

    Examples:
    - `bt-bench env`
    - `bt-bench env --json`
    """
    from bt_bench.results import (
        HELPER_TRAITS,
        Condition,
        Environment,
        Helpers,
        condition_texts,
        helper_state,
    )
    from bt_bench.worker import read_environment, read_machine

    missing = missing_packages()
    values: dict[str, Any] = dict.fromkeys(Environment.model_fields) | {"gpus": []}
    helpers: Helpers | None = None
    conditions: list[Condition] | None = None
    if not missing:
        environment = read_environment(resolve_device(device), choice=chosen_device(device))
        values, helpers = environment.model_dump(mode="json"), environment.helpers
        conditions = environment.conditions
    elif device is None:
        say(f"note: {needs_packages('a measurement', missing)}")
        values |= read_machine()
    else:
        raise needs_packages("--device", missing)
    if as_json:
        print_json({"schema_version": 1} | values)
        return ExitCode.OK
    gpus = values.pop("gpus")
    del values["helpers"], values["conditions"]
    for name, value in values.items():
        print(f"{name:<20}{'–' if value is None else value}")
    if helpers is not None:
        print("helpers")
        for name, traits in HELPER_TRAITS.items():
            print(f"  {traits.title:<18}{helper_state(getattr(helpers, name))}")
    for text in condition_texts(conditions):
        print(f"{'condition':<20}{text}")
    for gpu in gpus:
        print(f"gpu {gpu.pop('index')}")
        for name, value in gpu.items():
            print(f"  {name:<18}{'–' if value is None else value}")
    return ExitCode.OK
