"""What the documentation tells to type: every command, option, recipe and override is accepted."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer
from typer.core import TyperGroup
from typer.main import get_command

from kbqa.recipes import load_recipe
from services.cli.__main__ import create_cli
from services.cli.options import read_pairs
from services.kg_server.settings import KgServerSettings
from services.rollout_worker.settings import RolloutWorkerSettings

ROOT = Path(__file__).parents[3]
PAPERS = sorted(ROOT.glob("docs/papers/[!R]*.md"))
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("docs/[!a]*/*.md"))]
ABLATED = {"knowcoder-a1": "knowcoder-a1-curriculum"}  # the recipe that the page's ablations change

_BLOCK = re.compile(r"^ *```sh\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
_COMMENT = re.compile(r"(^|\s)#.*")
_SWITCH = re.compile(r"`(--set [^`]+)`")
_VARIABLE = re.compile(r"\b(KBQA_\w+)=")


class Typed(NamedTuple):
    """A kbqa command on a page."""

    page: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page}: {' '.join(self.words)}"


def lines(page: Path) -> Iterator[str]:
    """The lines of the page's shell blocks, with continued ones joined."""
    for block in _BLOCK.findall(page.read_text()):
        yield from block.replace("\\\n", " ").splitlines()


def typed(page: Path) -> Iterator[Typed]:
    """The kbqa commands; variables before them, pipes and comments are left out."""
    for line in lines(page):
        if "kbqa " not in line:
            continue
        lexer = shlex.shlex(_COMMENT.sub("", line), posix=True, punctuation_chars="&|;")
        lexer.whitespace_split, lexer.commenters = True, ""
        words: list[str] = []
        for word in [*lexer, ";"]:
            if not set(word) <= set("&|;"):
                words.append(word)
                continue
            while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
                words.pop(0)
            if words[:1] == ["kbqa"]:
                yield Typed(page.name, tuple(words[1:]))
            words = []


def leaf(words: tuple[str, ...]) -> typer.Context:
    """The context of a command whose arguments were parsed and which was not executed.

    Raises:
        Exception: a usage error; the command does not accept them.
    """
    command: Any = get_command(create_cli())
    context = command.make_context("kbqa", list(words))
    while isinstance(command, TyperGroup):
        name, command, left = command.resolve_command(context, [*context._protected_args, *context.args])
        context = command.make_context(name, left, parent=context)
    return context


COMMANDS = list(dict.fromkeys(command for page in PAGES for command in typed(page)))


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_a_documented_command_is_accepted(command):
    given = leaf(command.words).params
    if given.get("recipe"):
        load_recipe(given["recipe"], read_pairs("--set", given.get("overrides")))


def test_commands_are_found_behind_variables_comments_and_continued_lines(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "```sh\nA=b kbqa up  # all\nmake x && kbqa eval p \\\n    world\nkbqa train --datset w\n```\n"
    )
    found = list(typed(page))
    assert [command.words for command in found] == [
        ("up",),
        ("eval", "p", "world"),
        ("train", "--datset", "w"),
    ]
    with pytest.raises(Exception, match="No such option: --datset"):
        leaf(found[-1].words)


@pytest.mark.parametrize("page", PAPERS, ids=lambda page: page.stem)
def test_the_switches_of_a_papers_ablations_are_those_of_its_recipe(page):
    switches = _SWITCH.findall(page.read_text())
    assert switches
    for switch in switches:
        words = shlex.split(switch)
        assert words[::2] == ["--set"] * len(words[::2]), switch
        load_recipe(ABLATED.get(page.stem, page.stem), read_pairs("--set", words[1::2]))


@pytest.mark.parametrize("page", PAPERS, ids=lambda page: page.stem)
def test_the_variables_that_a_page_sets_are_settings(page, monkeypatch):
    """Those of kg_server and of workers are read by them; the others are described in a README."""
    files = (file for pattern in ("*.md", "*.py") for file in ROOT.glob(f"services/*/{pattern}"))
    described = "".join(file.read_text() for file in files)
    set_there = dict(
        word.split("=", 1)
        for line in lines(page)
        for word in shlex.split(_COMMENT.sub("", line))
        if _VARIABLE.match(word)
    )
    for name, value in set_there.items():
        if name.startswith(("KBQA_KG_SERVER_", "KBQA_ROLLOUT_WORKER_")):
            monkeypatch.setenv(name, value)
        else:
            assert name in described, name
    KgServerSettings.load()
    RolloutWorkerSettings.load()
