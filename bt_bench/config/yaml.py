"""YAML 1.2 as plain values that know their places in the source.

The nodes that ruamel.yaml composes are converted here instead of by its own constructors, which
stop at the first duplicate key and lose the places of scalars.
"""

from __future__ import annotations

import re
import unicodedata
import warnings
from dataclasses import dataclass
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, ReusedAnchorWarning, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from bt_bench.base.errors import UsageError, shown
from bt_bench.config.problems import Place, Problems

MAX_VALUES = 200_000
"""More values than any sane config has; aliases of aliases can name billions in a few lines."""

MAX_DEPTH = 100
"""Deeper nesting than any config needs; levels behind aliases and merges count."""

MAX_BITS = 3320
"""Bits of the largest integer: about a thousand digits; Python cannot print much longer ones."""

_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_TAG = "tag:yaml.org,2002:"
_SECOND_DOCUMENT = "but found another document"  # as ruamel.yaml says it


@dataclass(frozen=True)
class Located:
    """A value and its place in the source. Lists hold `Located`, mappings hold `YamlEntry`."""

    value: str | int | float | bool | list[Located] | dict[str, YamlEntry] | None
    place: Place

    def plain(self) -> Any:
        """Return the value without places, as `json.loads` would return it."""
        if isinstance(self.value, list):
            return [item.plain() for item in self.value]
        if isinstance(self.value, dict):
            return {key: entry.located.plain() for key, entry in self.value.items()}
        return self.value


@dataclass(frozen=True)
class YamlEntry:
    """The value of a key, and the place of the key itself."""

    located: Located
    key_place: Place


def refuse(located: Located, name: str, expected: str, problems: Problems) -> None:
    """Report a value that is not as expected."""
    problems.add(located.place, f"{name} is {shown(located.plain())}; expected {expected}")


def parse_yaml(text: str, source: str, problems: Problems) -> Located | None:
    """Parse a document; return `None` if it is empty.

    Duplicate keys are added to `problems`, and the first one counts.

    Raises:
        UsageError: if the text is not YAML, or has values that no config can have.
    """
    yaml: Any = YAML(typ="safe", pure=True)
    _limit_depth(yaml, source)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ReusedAnchorWarning)  # YAML allows them
            root = yaml.compose(text)
    except MarkedYAMLError as error:
        raise UsageError(_syntax_message(error, source)) from None
    except YAMLError as error:
        raise UsageError(_reader_message(error, text, source)) from None
    except (ValueError, AssertionError, AttributeError, LookupError, TypeError, OverflowError):
        # ruamel.yaml lets these out of its scanner for some malformed directives and escapes.
        raise UsageError(
            f"{Place(source, 1, 1)}: not valid YAML; check its directives and escapes"
        ) from None
    if root is None or _is_nothing(root):
        return None
    converter = _Converter(yaml.constructor, source, problems)
    located = converter.convert(root)
    if converter.broken:
        problems.raise_if_any()
    return located


def _limit_depth(yaml: Any, source: str) -> None:
    """Make the composer stop where nesting is too deep, before it recurses further."""
    compose_node = yaml.composer.compose_node
    depth = 0

    def limited(parent: Any, index: Any) -> Any:
        nonlocal depth
        if depth >= MAX_DEPTH:
            mark = yaml.parser.peek_event().start_mark
            raise UsageError(_depth_message(Place(source, mark.line + 1, mark.column + 1)))
        depth += 1
        try:
            return compose_node(parent, index)
        finally:
            depth -= 1

    yaml.composer.compose_node = limited


def _depth_message(place: Place) -> str:
    return (
        f"{place}: values are nested too deeply; expected at most {MAX_DEPTH} levels, counting "
        "those that aliases and merges lead to"
    )


def _is_nothing(node: Node) -> bool:
    """Return whether no value was written; such a node has the place of the next token."""
    return isinstance(node, ScalarNode) and node.value == "" and node.tag == _TAG + "null"


def _syntax_message(error: MarkedYAMLError, source: str) -> str:
    mark = error.problem_mark or error.context_mark
    place = Place(source, mark.line + 1, mark.column + 1) if mark else Place(source)
    what = " ".join(str(error.problem or error.context or "syntax error").split())
    if what == _SECOND_DOCUMENT:
        return (
            f"{place}: a second document begins here; expected one config in a file; give it a "
            "file of its own, or remove the line that separates them"
        )
    return f"{place}: not valid YAML: {what}; check indentation, quotes and brackets up to here"


def _reader_message(error: YAMLError, text: str, source: str) -> str:
    position = getattr(error, "position", None)
    character = getattr(error, "character", None)
    if not isinstance(position, int) or character is None:
        return f"{Place(source, 1, 1)}: not valid YAML"
    before = text[:position]
    place = Place(source, before.count("\n") + 1, position - (before.rfind("\n") + 1) + 1)
    code = ord(character) if isinstance(character, str) else character
    return f"{place}: not valid YAML: character U+{code:04X} is not allowed; remove it"


class _Converter:
    """A converter of nodes to `Located` values; nodes that it cannot convert set `broken`."""

    def __init__(self, constructor: Any, source: str, problems: Problems) -> None:
        self._constructor = constructor
        self._source = source
        self._problems = problems
        self._open: set[int] = set()
        self._count = 0
        self.broken = False

    def convert(self, node: Node) -> Located:
        place = self._place(node)
        self._count += 1
        if self._count > MAX_VALUES:
            raise UsageError(
                f"{place}: the config has more than {MAX_VALUES:,} values, counting each use of "
                "an alias; write fewer"
            )
        if len(self._open) >= MAX_DEPTH:
            raise UsageError(_depth_message(place))
        if id(node) in self._open:
            return self._break(place, "a value contains an alias of itself; remove the alias")
        self._open.add(id(node))
        try:
            return self._convert_kind(node, place)
        finally:
            self._open.discard(id(node))

    def _convert_kind(self, node: Node, place: Place) -> Located:
        if isinstance(node, ScalarNode):
            return self._scalar(node, place)
        if isinstance(node, SequenceNode) and node.tag == _TAG + "seq":
            return Located([self.convert(item) for item in node.value], place)
        if isinstance(node, MappingNode) and node.tag == _TAG + "map":
            return Located(self._mapping(node), place)
        return self._custom_tag(node, place)

    def _place(self, node: Node) -> Place:
        mark = node.start_mark
        return Place(self._source, mark.line + 1, mark.column + 1)

    def _break(self, place: Place, message: str) -> Located:
        self._problems.add(place, message)
        self.broken = True
        return Located(None, place)

    def _custom_tag(self, node: Node, place: Place) -> Located:
        tag = str(node.tag).removeprefix(_TAG)
        return self._break(place, f"tag {shown(tag)} is not supported; remove it")

    def _scalar(self, node: ScalarNode, place: Place) -> Located:
        text = str(node.value)
        kind = str(node.tag).removeprefix(_TAG)
        if kind in ("str", "timestamp", "merge", "value"):
            if _PAIR.search(text):  # as JSON escapes a character beyond 16 bits
                text = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
            # Line breaks are allowed, and so are bytes of file names that are not UTF-8.
            rest = re.sub("[\n\t\udc80-\udcff]", "", text)
            if any(unicodedata.category(char) in ("Cc", "Cs") for char in rest):
                return self._break(place, "text has a control character; remove it")
            return Located(text, place)
        if kind == "null":
            return Located(None, place)
        if kind not in ("int", "float", "bool"):
            return self._custom_tag(node, place)
        try:
            value = getattr(self._constructor, f"construct_yaml_{kind}")(node)
        except (ValueError, KeyError, IndexError, OverflowError):
            return self._break(
                place, f"{shown(text)} is not a valid {kind}; expected a number or text"
            )
        if isinstance(value, int) and value.bit_length() > MAX_BITS:
            return self._break(place, "a number has more than 1,000 digits; expected a smaller one")
        plain = {"int": int, "float": float, "bool": bool}[kind](value)
        return Located(plain, place)

    def _mapping(self, node: MappingNode) -> dict[str, YamlEntry]:
        own: dict[str, YamlEntry] = {}
        merged: dict[str, YamlEntry] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _TAG + "merge":
                self._merge(value_node, merged)
                continue
            key = self.convert(key_node)
            nothing = _is_nothing(value_node)
            value = Located(None, key.place) if nothing else self.convert(value_node)
            entry = YamlEntry(value, key.place)
            if not isinstance(key.value, str):
                self._break(key.place, f"key {shown(key.plain())} is not text; put it in quotes")
            elif key.value in own:
                first = own[key.value].key_place
                self._problems.add(
                    key.place,
                    f"key {shown(key.value)} is given twice; the first is at {first}; remove one",
                )
            else:
                own[key.value] = entry
        return merged | own

    def _merge(self, node: Node, merged: dict[str, YamlEntry]) -> None:
        """Add the keys of `<<: *name` or `<<: [*one, *two]`; earlier mappings win."""
        located = self.convert(node)
        mappings = located.value if isinstance(located.value, list) else [located]
        for mapping in mappings:
            if not isinstance(mapping.value, dict):
                self._break(
                    mapping.place,
                    f"'<<' merges {shown(mapping.plain())}; expected a mapping or a list of them",
                )
                continue
            for key, entry in mapping.value.items():
                merged.setdefault(key, entry)
