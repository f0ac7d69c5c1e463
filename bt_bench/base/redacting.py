"""Texts without host names, user names and absolute paths, for readers elsewhere.

A text of another machine is redacted by its form alone. An absolute path keeps its last part, so
file names and line numbers stay useful: `/home/ann/kernels/mine.py:12` becomes `mine.py:12`. Names
are learned from paths of home folders and from `NAME@HOST`, and then replaced wherever they stand
as a word.
"""

from __future__ import annotations

import getpass
import os
import platform
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

HOME, USER, HOST = "~", "<user>", "<host>"

# Names that give nobody away, and that texts are full of.
_WORDS = """
    admin all any bench bt_bench build ci cpu cuda data default dev docker fused git github gitlab
    gpu gpus home host jit jovyan jenkins local localdomain localhost main none nvidia path pytest
    python root run runner shared step test tests tmp torch triton ubuntu user users vllm work
    worker workspace
"""
_COMMON = frozenset(_WORDS.split())
_MOST_PASSES = 10
_SHORTEST = 3  # shorter names are words of many texts

_HOME_FOLDER = re.compile(r"/(?:home|homes|Users|users)/+([^\s/'\"`<>:;,|()\[\]{}]+)")
_TILDE = re.compile(r"(?<![\w~])~([A-Za-z][\w.-]*)/")
_AT = re.compile(r"(?<![\w.+@-])([\w.+-]*\w)@([A-Za-z0-9][\w-]*(?:\.[\w-]+)*)")
_REMOTE = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s/@'\"<>]+@[^\s/'\"<>]+((?:/[^\s'\"<>]*)?)")
_FILE_URL = re.compile(r"\bfile:/*(?=/)")
# In quotes, a path may have blanks.
_QUOTED = re.compile(r"(?P<quote>['\"`])(?P<path>(?:~[\w.-]*)?/[^'\"`\n]*)(?P=quote)")
# A part ends at what sentences put around paths, and at the line number behind a colon.
_PART = r"(?:[^\s/'\"`<>|;:()\[\]{}\\]|\\.|:(?![\d\s/]|$))*"
_PATH = re.compile(
    rf"(?:(?<![\w.~/:])|(?<=:)(?!//)|(?<=\W-[A-Za-z]))(?:~[\w.-]*)?/+{_PART}(?:/+{_PART})*",
    re.MULTILINE,
)
_UPWARD = re.compile(rf"(?<![\w.~/])(?:\.\./)+(?=(?:home|homes|Users|users)/)(?:{_PART}/+)*")


@dataclass(frozen=True)
class Redactor:
    """A replacement of secrets in texts; redacting twice changes nothing more.

    Args:
        users: names of users.
        hosts: names of hosts.
        folders: absolute paths that may have blanks, such as the folder of a run.
        keep: names that texts need, such as the ones of variants: they are never taken for the
            name of a user or a host.
    """

    users: Collection[str] = ()
    hosts: Collection[str] = ()
    folders: Collection[str] = ()
    keep: Collection[str] = field(default=frozenset(), repr=False)

    def text(self, text: str) -> str:
        """Return a text without secrets."""
        known = self._seen.get(text)
        if known is None:
            known = self._seen[text] = self._redacted(text)
        return known

    @cached_property
    def _seen(self) -> dict[str, str]:
        """Texts that were redacted: results repeat most of theirs in every case."""
        return {}

    def _redacted(self, text: str) -> str:
        for _ in range(_MOST_PASSES):
            found = self._once(text)
            if found == text:
                break
            text = found
        return text

    def argument(self, text: str) -> str:
        """Return an argument of a command, or a value, that may be a path with blanks in it."""
        head, equals, path = text.rpartition("=")
        if re.match(r"(~[\w.-]*)?/", path) and not re.search(r"[,:;]/|\s/", path):
            text = f"{head}{equals}{_last_part(path)}"
        return self.text(text)

    def learned_from(self, texts: Iterable[str]) -> Redactor:
        """Return a redactor that also knows the names of users and hosts in these texts."""
        users, hosts = dict.fromkeys(self.users), dict.fromkeys(self.hosts)
        for text in texts:
            if "/" in text:
                users |= dict.fromkeys([*_HOME_FOLDER.findall(text), *_TILDE.findall(text)])
            if "@" in text:
                for user, host in _AT.findall(text):
                    if user not in self.keep:
                        users[user] = hosts[host] = None
        return replace(self, users=tuple(users), hosts=tuple(hosts))

    def _once(self, text: str) -> str:
        for folder in sorted(self.folders, key=len, reverse=True):
            if len(folder) > 1:
                text = text.replace(f"{folder}/", "/")
                text = re.sub(rf"{re.escape(folder)}(?![\w.-])", _last_part(folder), text)
        if "/" in text:
            text = _FILE_URL.sub("", text)
            text = _REMOTE.sub(lambda match: f"{USER}@{HOST}:{_last_part(match[1])}", text)
            text = _UPWARD.sub("", text)
            text = _QUOTED.sub(_without_folders_in_quotes, text)
            text = _PATH.sub(_without_folders, text)
        if "@" in text:
            text = _AT.sub(self._without_address, text)
        return self._names.sub(lambda match: self._replaced[match[0]], text)

    def _without_address(self, match: re.Match[str]) -> str:
        return match[0] if match[1] in self.keep else f"{USER}@{HOST}"

    @cached_property
    def _replaced(self) -> dict[str, str]:
        """The names, and what stands for each: different names must not become one."""
        found: dict[str, str] = {}
        for names, sign in ((self.hosts, HOST), (self.users, USER)):
            number = 0
            for name in names:
                forms = {name, name.partition(".")[0]} if sign == HOST else {name}
                new = [form for form in forms if self._is_secret(form) and form not in found]
                number += bool(new)
                stands = sign if number == 1 else f"{sign[:-1]}{number}>"
                found |= dict.fromkeys(new, stands)
        return found

    @cached_property
    def _names(self) -> re.Pattern[str]:
        names = "|".join(map(re.escape, sorted(self._replaced, key=len, reverse=True)))
        return re.compile(rf"(?<![^\W_])(?:{names})(?![^\W_])" if names else r"(?!)")

    def _is_secret(self, name: str) -> bool:
        known = name in self.keep or name.lower() in _COMMON or name.isdigit()
        return len(name) >= _SHORTEST and not known


def redactor_here(folders: Iterable[Path] = (), keep: Collection[str] = ()) -> Redactor:
    """Return a redactor that knows the user, the host and the folders of this process.

    Args:
        folders: further folders, such as the one of a run.
        keep: as in `Redactor`.
    """
    try:
        users = [getpass.getuser()]
    except (OSError, KeyError):  # a container's user without a name
        users = []
    own = [Path.home(), Path.cwd(), *folders] if os.environ.get("HOME") else [*folders]
    absolute = [os.path.abspath(folder) for folder in own]  # noqa: PTH100 - links stay as typed
    return Redactor(users, [platform.node()], absolute, keep)


def _without_folders(match: re.Match[str]) -> str:
    path, before = match[0], match.string[: match.start()][-1:]
    after = match.string[match.end() : match.end() + 1]
    if before == "<" and after == ">" and path.count("/") == 1:
        return path  # the end of an HTML element
    end = path[len(path.rstrip(".,")) :]
    return _last_part(path.rstrip(".,")) + end


def _without_folders_in_quotes(match: re.Match[str]) -> str:
    return f"{match['quote']}{_last_part(match['path'])}{match['quote']}"


def _last_part(path: str) -> str:
    """Return the last part of a path, or `~` for a home folder."""
    parts = [part for part in path.split("/") if part not in ("", ".", "..")]
    is_home = len(parts) == 2 and parts[0] in ("home", "homes", "Users", "users")
    if is_home or (len(parts) == 1 and re.fullmatch(r"~[\w.-]*", parts[0])):
        return HOME
    return parts[-1] if parts else path
