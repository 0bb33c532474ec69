"""Patterns by which a phrase becomes a question, for schemas that are invented."""

from __future__ import annotations

ONE = (
    *("what is {} ?", "who or what is {} ?", "name {} .", "i want to know {} .", "{} ?", "{}", "tell me {}"),
    *("which is {} ?", "give me {} .", "can you tell me {} ?", "find {}", "do you know {} ?", "who is {} ?"),
    *("what is the name of {} ?", "show {}", "{} please", "i am looking for {}", "what was {} ?"),
    *("which one is {} ?", "could you name {} ?", "{} is what ?", "what would be {} ?", "i need {}"),
)
SEVERAL = (
    *("what are {} ?", "which are {} ?", "name {} .", "list {} .", "{} ?", "{}"),
    *("who are {} ?", "give me {} .", "show me {}", "please list {} .", "what were {} ?", "find all {}"),
    *("can you name {} ?", "i am looking for {}", "i want a list of {} .", "tell me {}", "which were {} ?"),
)
HOW_MANY = (
    *("how many {} are there ?", "count the {} .", "what is the number of {} ?", "number of {} ?"),
    *("how many are the {} ?", "give me the count of {}", "tell me how many {} there are", "how many {}"),
    *("what 's the total number of {} ?", "the number of {} , please"),
)
SUPERLATIVES = (
    *("the {0} {1} {3}", "the {0} of the {2} {3}", "the {2} {3} that is the {0}", "{0} {1} {3}"),
    *("the {1} {3} which is the {0}", "the {0} one of the {2} {3}", "the {0} among the {2} {3}"),
)
RECORDS = (
    *("the {1} {3} with the {0}", "the {1} with the {0} among the {2} {3}", "the {1} {3} of the {0}"),
    *(
        "the {1} {3} that has the {0}",
        "the one with the {0} of the {2} {3}",
        "which of the {2} {3} has the {0}",
    ),
)
CLAUSE = (
    *("tell me {} .", "i want to know {} .", "can you tell me {} ?", "find out {} .", "{} ?", "{}"),
    *("do you know {} ?", "i wonder {}", "please say {}", "would you know {} ?"),
)
CLAUSES = ("how ", "what ", "who ", "when ", "where ")
"""How phrases begin that are clauses."""
