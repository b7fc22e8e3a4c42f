"""A small tokenizer for PowerShell: supports scripts of commands with literal arguments, and rejects everything else.
Rules: https://learn.microsoft.com/powershell/scripting/lang-spec/chapter-02"""

from __future__ import annotations

import re
from typing import NamedTuple


class Token(NamedTuple):
    """`kind` is type, variable, parameter, text, word, operator or end; the value of a text has no quotes."""

    kind: str
    value: str


PATTERNS = [
    ("comment", r"#[^\n]*"),
    ("end", r"\r?\n|;"),
    ("blank", r"[ \t]+|`\r?\n"),
    ("type", r"\[[A-Za-z][\w.]*\]"),
    ("variable", r"\$(?:\w+:)?\w+"),
    # In single quotes, only a quote is special and is doubled.
    ("single", r"'(?:[^']|'')*'"),
    # In double quotes, a backtick escapes.
    ("double", r'"(?:[^"`]|""|`[\s\S])*"'),
    ("parameter", r"-[A-Za-z]\w*"),
    ("operator", r"[=&|]"),
    ("word", r"[\w\\/:.@-]+"),
]
LEXER = re.compile("|".join(f"(?P<{kind}>{pattern})" for kind, pattern in PATTERNS))


def tokens(text: str) -> list[Token]:
    """All tokens of a script; raises ValueError if it is not supported."""
    found, position = [], 0
    while position < len(text):
        match = LEXER.match(text, position)
        if match is None:
            raise ValueError(f"no PowerShell at {text[position:position + 20]!r}")
        kind, value, position = match.lastgroup, match.group(), match.end()
        if kind == "single":
            found.append(Token("text", value[1:-1].replace("''", "'")))
        elif kind == "double":
            found.append(Token("text", value[1:-1].replace('""', '"')))
        elif kind not in ("comment", "blank"):
            found.append(Token(kind, value))
    return found


def statements(text: str) -> list[list[Token]]:
    """Tokens of each statement."""
    found: list[list[Token]] = [[]]
    for token in tokens(text):
        if token.kind == "end":
            found.append([])
        else:
            found[-1].append(token)
    return [statement for statement in found if statement]


def arguments(call: list[Token]) -> dict[str, str]:
    """Named arguments of a call whose arguments are all string literals."""
    names, values = call[0::2], call[1::2]
    if len(names) != len(values) or any(it.kind != "parameter" for it in names) or any(it.kind != "text" for it in values):
        raise ValueError(f"not named literal arguments: {call}")
    return {name.value: value.value for name, value in zip(names, values)}
