"""Conversations: what a follow-up question means after the questions and answers before it.

    understood = understand("Where was he born?", [exchange], Acquaintances(tools, "films"))
    understood.question        # "Where was Michael Mann born?"

`exchanges` is what a conversation holds, `references` finds pronouns, `antecedents` what they stand for,
`fragments` what an incomplete question leaves out, and `understanding` writes the complete question.
`rewriting` leaves that to a chat model.
"""

from kbqa.conversation.acquaintances import Acquaintances
from kbqa.conversation.exchanges import Exchange, Name, Thing
from kbqa.conversation.rewriting import ChatRewriter
from kbqa.conversation.understanding import Understood, understand

__all__ = ["Acquaintances", "ChatRewriter", "Exchange", "Name", "Thing", "Understood", "understand"]
