"""A page as one self-contained HTML file: it contains its styles, script and data, and loads nothing."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from string import Template
from typing import Any

_STATIC = files(__package__) / "static"
_IMPORT = re.compile(r"^import .* from \"\./([\w.]+)\";\n", re.MULTILINE)


def document(
    title: str,
    data: Mapping[str, Any],
    styles: Sequence[str],
    modules: Sequence[str],
    parts: Mapping[str, str],
) -> str:
    """The HTML of a page.

    Args:
        title: may contain any characters, like the texts in `data`.
        data: becomes JSON, which the last module reads from the element `data`.
        styles, modules: files in `static`; each module comes after the modules that it imports. All become
            one script, so that no two of them may use a name at their top level.
        parts: id of a part of the page → its name, in the navigation.
    """
    style = "\n".join(_text(name) for name in styles)
    theme, script = _text("theme.js"), _bundle(modules)
    # The script shows texts of models and graphs as text nodes; an unescaped `<` could end the element early.
    written = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    policy = (
        f"default-src 'none'; script-src {_allowed(theme)} {_allowed(script)}; style-src {_allowed(style)}; "
        "base-uri 'none'; form-action 'none'"
    )
    return Template(_text("document.html")).substitute(
        policy=policy,
        title=html.escape(title),
        nav="".join(f'<a href="#{part}">{html.escape(name)}</a>' for part, name in parts.items()),
        style=style,
        theme=theme,
        data=written,
        script=script,
    )


def _text(name: str) -> str:
    return (_STATIC / name).read_text(encoding="utf-8")


def _bundle(modules: Sequence[str]) -> str:
    """All modules in one script, each after the modules that it imports."""
    bundle: list[str] = []
    for name in modules:
        text = _text(name)
        missing = set(_IMPORT.findall(text)) - set(modules[: len(bundle)])
        assert not missing, f"{name} imports {missing}, which must come before it"
        bundle.append(re.sub(r"^export ", "", _IMPORT.sub("", text), flags=re.MULTILINE))
    return "\n".join(bundle)


def _allowed(source: str) -> str:
    """The source of a content security policy that allows an inline script or style."""
    digest = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
    return f"'sha256-{digest}'"
