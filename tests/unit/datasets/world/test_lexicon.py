"""The lexicon, over WordNet's own files and over some lines in their format."""

from __future__ import annotations

import pytest

from kbqa.datasets.world.lexicon import NOUN, VERB, Inflections, Lexicon, Related
from kbqa.errors import DatasetError
from tests.unit.datasets.world.wordnet import lexicon_or_skip

LICENCE = "  1 This is the licence, which is indented.  \n"
# offset, field, part, number of words, (word, number)…, number of pointers, pointers…, frames of verbs
NOUNS = """\
00000100 18 n 02 parent 0 begetter 0 002 @ 00000200 n 0000 ~ 00000300 n 0000 | a father or mother
00000200 18 n 01 relative 0 002 ~ 00000100 n 0000 ~ 00000600 n 0000 | a person related by blood
00000300 18 n 02 mother 0 Female_Parent 0 000 | a woman who has given birth
00000400 18 n 01 writer 0 000 | one who writes
00000500 04 n 01 writing 0 000 | the act of writing
00000600 18 n 01 cuss 0 001 ;u 00000700 n 0000 | a word that one does not say
"""
VERBS = """\
00000900 36 v 02 write 0 pen 0 002 + 00000400 n 0101 + 00000500 n 0101 02 + 08 00 + 02 00 | produce a text
00000950 36 v 01 rain 0 000 01 + 01 00 | fall
"""
COUNTS = {
    "parent%1:18:00::": 9,
    "begetter%1:18:00::": 0,
    "relative%1:18:00::": 5,
    "mother%1:18:00::": 8,
    "cuss%1:18:00::": 9,
    "write%2:36:00::": 7,
    "pen%2:36:00::": 1,
    "rain%2:36:00::": 6,
}


def index(data: str) -> str:
    lines = []
    for line in data.splitlines():
        fields = line.split()
        words = fields[4 : 4 + 2 * int(fields[3], 16) : 2]
        lines += [f"{word.lower()} {fields[2]} 1 1 @ 1 1 {fields[0]}  \n" for word in words]
    return LICENCE + "".join(lines)


@pytest.fixture
def directory(tmp_path):
    for part, data in (("noun", NOUNS), ("verb", VERBS)):
        (tmp_path / f"data.{part}").write_text(LICENCE + data)
        (tmp_path / f"index.{part}").write_text(index(data))
    (tmp_path / "cntlist.rev").write_text("".join(f"{key} 1 {n}\n" for key, n in COUNTS.items()))
    return tmp_path


def test_words_are_found_by_field_frequency_and_frame(directory):
    lexicon = Lexicon.load(directory)
    assert lexicon.nouns("person", frequency=5) == ["parent", "relative", "mother"]
    assert lexicon.nouns("person", frequency=6) == ["parent", "mother"]
    assert lexicon.nouns("place", frequency=1) == []
    assert lexicon.transitive_verbs(1) == ["write", "pen"]  # rain takes no object


def test_relatives_of_a_word(directory):
    lexicon = Lexicon.load(directory)
    # "begetter" was never counted, and "female parent" is a name of two words, which is no narrower word.
    assert lexicon.related("parent", NOUN) == Related((), ("relative",), ("mother",))
    assert lexicon.related("write", VERB) == Related(("pen",), (), ())
    assert lexicon.related("unheard", NOUN) == Related((), (), ())
    assert lexicon.agent("write") == "writer"
    assert lexicon.act("write") == "writing"
    assert lexicon.agent("rain") is None
    assert lexicon.below("relative") == ["parent", "mother"]
    assert lexicon.below("relative", 9) == ["parent"]


def test_words_whose_usage_is_marked_name_nothing(directory):
    lexicon = Lexicon.load(directory)
    assert "cuss" not in lexicon.nouns("person", frequency=1)
    assert "cuss" not in lexicon.below("relative", 1)


def test_the_directory_is_named_by_an_environment_variable(directory, monkeypatch):
    monkeypatch.setenv("KBQA_WORDNET", str(directory))
    assert Lexicon.load().transitive_verbs(7) == ["write"]


@pytest.mark.parametrize("broken", [None, "nothing", "00000100 18 n 02 parent\n", "a b c d e f g h\n"])
def test_files_that_cannot_be_read_are_reported_with_the_package_to_install(directory, broken):
    if broken is None:
        (directory / "data.noun").unlink()
    else:
        (directory / "data.noun").write_text(broken)
    with pytest.raises(
        DatasetError, match="WordNet cannot be read .*apt-get install wordnet-base.*KBQA_WORDNET"
    ):
        Lexicon.load(directory)


def test_wordnet_itself():
    lexicon = lexicon_or_skip()
    assert lexicon.related("spouse", NOUN) == Related(("partner", "mate"), ("relative",), ("husband", "wife"))
    assert lexicon.agent("write") == "writer"
    assert lexicon.act("publish") == "publication"
    assert len(lexicon.nouns("person")) > 400
    assert len(lexicon.transitive_verbs()) > 1000


@pytest.mark.parametrize(
    ("word", "tag", "form"),
    [("write", "VBD", "wrote"), ("write", "VBN", "written"), ("city", "NNS", "cities"), ("Xq", "VBZ", "Xqs")],
)
def test_inflections(word, tag, form):
    lexicon_or_skip()
    assert Inflections().of(word, tag) == form
