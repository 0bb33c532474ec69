"""The tokens of a SPARQL query: the one lexer of the guard, the normaliser and the decomposition.

It is lenient, since it judges text that need not parse: what no rule knows is a token
of one character.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

# "space" includes comments; "quote" opens a string that does not end.
TokenKind = Literal[
    "space", "iri", "string", "quote", "variable", "tag", "name", "number", "word", "open", "close", "other"
]

# In the order in which they are tried; possessive, so that no text makes it backtrack.
_TOKEN = re.compile(
    r"""
    (?P<space>    (?: \s | \#[^\n\r]* )++ )
  | (?P<iri>      < (?: [^<>"{}|^`\\\x00-\x20] | \\u[0-9A-Fa-f]{4} | \\U[0-9A-Fa-f]{8} )*+ > )
  | (?P<string>   \"\"\" (?: [^"\\] | \\. | \"(?!\"\") )*+ \"\"\" | ''' (?: [^'\\] | \\. | '(?!'') )*+ '''
                | "(?!"") (?: [^"\\\n\r] | \\. )*+ " | '(?!'') (?: [^'\\\n\r] | \\. )*+ ' )
  | (?P<quote>    ["'] )
  | (?P<variable> [?$]\w++ )
  | (?P<tag>      @[A-Za-z][A-Za-z0-9-]*+ )
  | (?P<name>     (?: _ | (?: [^\W\d_] [\w.\-·]{0,200}+ )? ) :
                  (?: (?: [\w:·] | %[0-9A-Fa-f]{2} | \\[^\w\s] )
                      (?: [\w:\-·] | \.(?=[\w:.\-·%\\]) | %[0-9A-Fa-f]{2} | \\[^\w\s] )*+ )? )
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
    """The tokens of `text`, which joined give it back.

    They come one by one, so that whoever refuses a text need not read all of it: past a
    "quote", for one, the end of a string would be looked for again at every quote.
    """
    for match in _TOKEN.finditer(text):
        # lastgroup is one of the kinds: the pattern names no other group.
        yield Token(match.lastgroup, match.group(), match.start())  # type: ignore[arg-type]


def position(text: str, offset: int) -> str:
    """Line and column, both from 1, as engines write them."""
    line_start = text.rfind("\n", 0, offset) + 1
    return f"{text.count(chr(10), 0, offset) + 1}:{offset - line_start + 1}"
