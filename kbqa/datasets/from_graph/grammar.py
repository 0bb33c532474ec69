"""Patterns by which a phrase about a graph becomes a question."""

from __future__ import annotations

from kbqa.datasets.world.schema import Grammar

_TOLD = (
    *("give me {} .", "tell me {} .", "i want to know {} .", "can you tell me {} ?", "do you know {} ?"),
    *("please tell me {} .", "{} ?", "{}"),
)
_LISTED = (
    *(
        "name {} .",
        "list {} .",
        "give me {} .",
        "show me {} .",
        "please list {} .",
        "find {} .",
        "tell me {} .",
    ),
    *(
        "can you name {} ?",
        "could you list {} ?",
        "i am looking for {} .",
        "i want a list of {} .",
        "{} ?",
        "{}",
    ),
)
_FEW = 3  # "what is" and "who is" are asked as often as a third of all else

GRAMMAR = Grammar(
    one=("what is {} ?",) * _FEW + _TOLD,
    several=("what are {} ?", "which are {} ?") * _FEW + _LISTED,
    people_one=("who is {} ?", "what is the name of {} ?") * _FEW
    + ("name {} .", "could you name {} ?", *_TOLD),
    people_several=("who are {} ?",) * 2 * _FEW + _LISTED,
    how_many=(
        *("how many {} are there ?", "count the {} .", "what is the number of {} ?", "number of {}"),
        *(
            "tell me how many {} there are .",
            "give me the number of {} .",
            "what is the total number of {} ?",
        ),
    ),
    clause=(),
    clauses=(),
    superlatives=(
        "the {0} {1} {3}",
        "the {0} of the {2} {4}",
        "the {0} {1} {3}",
        "which of the {2} {4} is the {0}",
    ),
    records=(
        *("the {1} {3} with the {0}", "the {1} with the {0} among the {2} {4}"),
        *(
            "which of the {2} {4} has the {0}",
            "which {1} {3} has the {0}",
            "the one with the {0} among the {2} {4}",
        ),
    ),
    direct=0.65,
    agrees=True,
    whether_one=(
        "is {0} {1} ?",
        "is it true that {0} is {1} ?",
        "tell me whether {0} is {1} .",
        "is {1} {0} ?",
    ),
    whether_several=(
        *("is {0} one of {1} ?", "is {0} among {1} ?", "is it true that {0} is one of {1} ?"),
        *("tell me whether {0} is among {1} .", "do {1} include {0} ?"),
    ),
)
"""Most paths end with a question of their own."""
