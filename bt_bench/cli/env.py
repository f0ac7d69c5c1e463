"""`bt-bench env`."""

from __future__ import annotations

from bt_bench.base.errors import ExitCode
from bt_bench.cli.options import DeviceOption, JsonOption, chosen_device, print_json, resolve_device


def env(device: DeviceOption = None, as_json: JsonOption = False) -> ExitCode:
    """Show the machine and the versions that a result would be labelled with.

    Examples:
    - `bt-bench env`
    - `bt-bench env --json`
    """
    from bt_bench.results import HELPER_TRAITS, helper_state
    from bt_bench.worker import read_environment

    environment = read_environment(resolve_device(device), choice=chosen_device(device))
    values = environment.model_dump(mode="json")
    if as_json:
        print_json({"schema_version": 1} | values)
        return ExitCode.OK
    gpus = values.pop("gpus")
    del values["helpers"]
    for name, value in values.items():
        print(f"{name:<16}{'–' if value is None else value}")
    print("helpers")
    for name, traits in HELPER_TRAITS.items():
        print(f"  {traits.title:<18}{helper_state(getattr(environment.helpers, name))}")
    for gpu in gpus:
        print(f"gpu {gpu.pop('index')}")
        for name, value in gpu.items():
            print(f"  {name:<18}{'–' if value is None else value}")
    return ExitCode.OK
