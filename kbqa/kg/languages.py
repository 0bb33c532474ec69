"""Which of several labels of a node is shown: by language, the preferred ones first."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from kbqa.errors import ConfigurationError

DEFAULT_LANGUAGES = ("en",)
MAX_LANGUAGES = 8
# After the preferred languages: what Wikidata calls labels of all languages, then English.
_FALLBACK = ("mul", "en")
_TAG = re.compile(r"[A-Za-z]{1,8}(-[A-Za-z0-9]{1,8})*")


def is_language(text: str) -> bool:
    """Whether a text is a language tag, such as `pt-BR`."""
    return _TAG.fullmatch(text) is not None


def check_languages(languages: Sequence[str]) -> None:
    """Check preferred languages.

    Raises:
        ConfigurationError: one is not a language tag, or there are too many.
    """
    for language in languages:
        if not is_language(language):
            raise ConfigurationError(f'"{language}" is not a language tag such as en or pt-BR')
    if len(languages) > MAX_LANGUAGES:
        raise ConfigurationError(f"at most {MAX_LANGUAGES} languages are allowed")


def ranges(languages: Sequence[str]) -> tuple[str, ...]:
    """The languages that go before labels without a language: the preferred ones, `mul` and `en`."""
    return tuple(dict.fromkeys((*map(str.lower, languages), *_FALLBACK)))


def ranks(languages: Sequence[str]) -> Iterator[tuple[str, int]]:
    """(language, its rank); a dialect such as en-GB has the next rank."""
    return ((language, 2 * place) for place, language in enumerate(ranges(languages)))


def untagged_rank(languages: Sequence[str]) -> int:
    """The rank of labels without a language; those in any other language have the next one."""
    return 2 * len(ranges(languages))


def rank(tag: str, languages: Sequence[str]) -> int:
    """The place of a label's language, 0 for the best.

    Args:
        tag: empty for a label without a language.
    """
    tag = tag.lower()
    for language, place in ranks(languages):
        if tag == language or tag.startswith(f"{language}-"):
            return place + (tag != language)
    return untagged_rank(languages) + bool(tag)
