"""What supports an answer, and whether the graph confirms it.

    answers = confirmed(runs, topics, Claims(tools, kg))

`retrieved` finds in the actions of a run what there is to cite, `claims` asks the graph about it, and
`support` puts both together for the answers that several runs gave (`union`).
"""

from kbqa.evidence.claims import CitedQuery, Claims
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
    "supported_share",
    "unite",
]
