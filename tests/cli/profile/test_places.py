"""Where profiles are written."""

from __future__ import annotations

import pytest

from bt_bench.base.errors import UsageError
from bt_bench.cli.profile.places import case_folder, case_folders, refuse_place


def test_a_case_has_a_folder_of_its_name(tmp_path):
    assert case_folder(tmp_path, "batch-tokens=1.5") == tmp_path / "profile-batch-tokens=1.5"


@pytest.mark.parametrize(
    "names",
    [
        ("a/b", "a b", "a-b", "../a-b"),
        ("x" * 101, "x" * 102, "x" * 100),
        ("a.json", "a.jsonl", ".json", "a.json.xz", "a"),
        ("\ud800", "é", "\n"),
    ],
)
def test_other_names_have_a_folder_each_too(tmp_path, names):
    folders = [case_folder(tmp_path, name) for name in names]
    assert len(set(folders)) == len(names)
    for folder in folders:
        assert folder.parent == tmp_path
        assert not folder.name.endswith(
            (".json", ".jsonl", ".xz")
        )  # else it would be taken for a result
        folder.mkdir()


def test_folders_that_hold_a_profile_are_found(tmp_path):
    for name, file in [("b", "counters.json"), ("a", "timeline.json"), ("c", "profile.md")]:
        case_folder(tmp_path, name).mkdir()
        (case_folder(tmp_path, name) / file).touch()
    (tmp_path / "timeline.json").touch()
    assert case_folders(tmp_path) == [tmp_path / "profile-a", tmp_path / "profile-b"]


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(UsageError, match=r"cannot be made: .*file is not a folder"):
        refuse_place(file / "below" / "x")
    refuse_place(tmp_path / "new" / "x")
    refuse_place(None)


@pytest.mark.parametrize("name", ["timeline.json", "counters.json"])
@pytest.mark.parametrize("suffix", ["", ".xz", ".gz"])
def test_a_profile_in_a_run_may_be_packed(tmp_path, name, suffix):
    folder = case_folder(tmp_path, "a")
    folder.mkdir()
    assert case_folders(tmp_path) == []
    (folder / f"{name}{suffix}").mkdir()
    assert case_folders(tmp_path) == []
    (folder / f"{name}{suffix}").rmdir()
    (folder / f"{name}{suffix}").write_text("{}")
    assert case_folders(tmp_path) == [folder]
