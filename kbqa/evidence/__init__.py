"""Evidence for answers, confirmed by the graph.

    answers = confirmed(runs, topics, Claims(tools, kg))

`retrieved` collects evidence from the actions of a run, `claims` checks it with the graph, and `support`
combines both for the merged answers of several runs (`union`). `queries` finds the one query behind them.
"""

from kbqa.evidence.claims import CitedQuery, Claims
from kbqa.evidence.queries import query_behind
from kbqa.evidence.retrieved import FollowedPath, Query, Retrieved, WalkedTriple, hops
from kbqa.evidence.support import CitedAnswer, Evidence, boolean_of, cited, confirmed, supported_share
from kbqa.evidence.union import UnitedAnswer, unite

__all__ = [
    "CitedAnswer",
    "CitedQuery",
    "Claims",
    "Evidence",
    "WalkedTriple",
    "Query",
    "Retrieved",
    "UnitedAnswer",
    "FollowedPath",
    "boolean_of",
    "cited",
    "confirmed",
    "hops",
    "query_behind",
    "supported_share",
    "unite",
]
