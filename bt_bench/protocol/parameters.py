"""The interface of a workload's parameters to the harness."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pydantic_core import PydanticCustomError

from bt_bench.base import expanded
from bt_bench.protocol.refs import SuiteRef, ref_of, suite_at
from bt_bench.protocol.workload import Workload
from bt_bench.results import Noun


@dataclass(frozen=True)
class UserFile:
    """A mark for a parameter that is the path of a user's file: `Annotated[str, UserFile()]`.

    A config gives the path relative to its own folder, and `--set` relative to the working
    directory; the workload gets an absolute one.

    Args:
        names: values that name something else and are not paths.
    """

    names: tuple[str, ...] = ()


class WorkloadParameters(Noun):
    """Validated parameters of a workload, which is built from nothing else.

    There is a subclass for each kind of workload. It gives its name as the only value of
    `workload`, its parameters as fields, and at least `build`. Fields are keys of the YAML, with
    their limits and descriptions. Their types are int, float, bool, str or Literal, lists of these,
    or a model of such parameters.
    """

    workload: str

    def check(self) -> None:
        """Refuse parameters that do not go together, cheaply: nothing is built or read.

        Raises:
            UsageError: naming parameter, value and limit.
        """

    def check_by_reading(self) -> None:
        """Refuse, before a run, parameters that do not fit the contents of the user's files.

        Raises:
            UsageError: naming parameter, value and limit.
        """

    @abstractmethod
    def build(self) -> Workload:
        """Build the workload; equal parameters give equal workloads.

        Raises:
            UsageError: for errors that `check` cannot see.
        """

    @property
    def features(self) -> frozenset[str]:
        """The `features` of the workload, known without building it."""
        return frozenset()

    def num_bytes(self) -> int:
        """Return the device memory of one instance of a variant in bytes; 0 if it is small."""
        return 0

    def num_programs(self) -> int:
        """Return roughly how many programs the kernels of all steps have; 0 if that is not known.

        Triton's interpreter runs one after the other, and a sweep estimates its time from that.
        """
        return 0

    def text_of(self, key: str) -> str | None:
        """Return a parameter's spelling in the name of a case; `None`: as its value is written."""
        return None

    def files(self) -> tuple[Path, ...]:
        """Return the paths of the user's files for the workload: those marked as `UserFile`."""
        return tuple(expanded(getattr(self, name)) for name in self.file_names())

    def with_files(self, place: Callable[[str, Path], Path]) -> Self:
        """Return the parameters of the same workload, with its files elsewhere.

        A subclass may replace a file by the parameters that it sets.

        Args:
            place: takes a parameter's name and its path, and returns where the file is.
        """
        placed = {
            name: str(place(name, expanded(getattr(self, name)))) for name in self.file_names()
        }
        return self.model_copy(update=placed) if placed else self

    def file_names(self) -> Iterator[str]:
        """Yield the names of the parameters that are paths of files."""
        for name, field in type(self).model_fields.items():
            for mark in field.metadata:
                if isinstance(mark, UserFile) and getattr(self, name) not in (None, *mark.names):
                    yield name

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle with a reference to the suite, whose modules are not on the import path."""
        return revived, (ref_of(type(self)), self.workload, self.model_dump())


def revived(ref: SuiteRef, kind: str, values: dict[str, Any]) -> WorkloadParameters:
    """Rebuild parameters that were pickled."""
    parameters: WorkloadParameters = suite_at(ref).kinds[kind].model_validate(values)
    return parameters


def wrong_parameter(field: str, message: str) -> PydanticCustomError:
    """Return an error for a validator of a whole model to raise; it is shown at the field's place.

    Args:
        field: the parameter that caused it.
        message: names the parameter, its value and the expectation.
    """
    return PydanticCustomError(
        "wrong_parameters", "{message}", {"field": field, "message": message}
    )
