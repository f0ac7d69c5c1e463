"""Reading of a profile's files, each given as a file or as the folder of the profile."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from bt_bench.base import name_of, packed_or_not, read_text
from bt_bench.base.errors import UsageError
from bt_bench.results.files.invalid import NounT, describe_invalid
from bt_bench.results.files.kinds import DocumentKind


def read_profile_file(
    path: Path, file_name: str, model: type[NounT], kind: DocumentKind, tool: str
) -> NounT:
    """Read a file of a profile.

    Args:
        path: the file, or its folder.
        file_name: its name within a folder, where it may be packed.
        model: its type.
        kind: its kind of document, for messages.
        tool: the `--tool` of `bt-bench profile` that writes it.

    Raises:
        UsageError: if it cannot be read or is invalid; names the problem.
    """
    file = packed_or_not(path / file_name) if path.is_dir() else path
    if path.is_dir() and not file.is_file():
        raise UsageError(
            f"{path} has no {file_name}; expected the folder of a profile by --tool {tool}"
        )
    name = name_of(file)
    text = read_text(file, name, expected=f"the {kind.name} of a profile", example=file_name)
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        problem = describe_invalid(text, error, model, kind)
        raise UsageError(f"{name} {problem}") from None
