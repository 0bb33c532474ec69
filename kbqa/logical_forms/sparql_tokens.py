"""The lexer for SPARQL queries, shared by the guard, the dialect and the decomposition.

It is lenient, since the text may be invalid: a character that matches no rule is a token.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

# "space" includes comments; "quote" opens a string that does not end.
TokenKind = Literal[
    "space", "iri", "string", "quote", "variable", "tag", "name", "number", "word", "open", "close", "other"
]

# Alternatives are tried in this order; possessive, so that no text causes backtracking. A repeated group is
# not, where a part of it can fail behind its first character: Python before 3.11.5 then keeps that character
# (gh-106052). Its parts begin with different characters, so there is nothing to backtrack into either.
_TOKEN = re.compile(
    r"""
    (?P<space>    (?: \s | \#[^\n\r]* )++ )
  | (?P<iri>      < (?: [^<>"{}|^`\\\x00-\x20] | \\u[0-9A-Fa-f]{4} | \\U[0-9A-Fa-f]{8} )* > )
  | (?P<string>   \"\"\" (?: [^"\\] | \\. | \"(?!\"\") )* \"\"\" | ''' (?: [^'\\] | \\. | '(?!'') )* '''
                | "(?!"") (?: [^"\\\n\r] | \\. )*+ " | '(?!'') (?: [^'\\\n\r] | \\. )*+ ' )
  | (?P<quote>    ["'] )
  | (?P<variable> [?$]\w++ )
  | (?P<tag>      @[A-Za-z][A-Za-z0-9-]*+ )
  | (?P<name>     (?: _ | (?: [^\W\d_] [\w.\-·]{0,200}+ )? ) :
                  (?: (?: [\w:·] | %[0-9A-Fa-f]{2} | \\[^\w\s] )
                      (?: [\w:\-·] | \.(?=[\w:.\-·%\\]) | %[0-9A-Fa-f]{2} | \\[^\w\s] )* )? )
  | (?P<number>   (?: \d++\.?\d*+ | \.\d++ ) (?: [eE][+-]?\d++ )? )
  | (?P<word>     [^\W\d_]\w*+ )
  | (?P<open>     [{(\[] )
  | (?P<close>    [})\]] )
  | (?P<other>    . )
    """,
    re.VERBOSE | re.DOTALL,
)


class Token(NamedTuple):
    """A piece of a query; `start` is its offset in characters."""

    kind: TokenKind
    text: str
    start: int


def tokenize(text: str) -> Iterator[Token]:
    """Yield the tokens of `text`; joined, they equal `text`.

    Tokens are yielded lazily, so that a caller that refuses a text need not read all of it.
    After a "quote", for example, every further quote would search for the string's end again.
    """
    for match in _TOKEN.finditer(text):
        # lastgroup is one of the kinds: the pattern names no other group.
        yield Token(match.lastgroup, match.group(), match.start())  # type: ignore[arg-type]


def position(text: str, offset: int) -> str:
    """Line and column, both from 1, in the form that engines use."""
    line_start = text.rfind("\n", 0, offset) + 1
    return f"{text.count(chr(10), 0, offset) + 1}:{offset - line_start + 1}"
