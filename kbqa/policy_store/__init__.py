"""The policy store: versions, integrity, promotion, retention. Imports no tensor library."""

from kbqa.policy_store.changes import Changes, TensorChange, compare
from kbqa.policy_store.manifest import Manifest
from kbqa.policy_store.shelves import LocalShelf, RemoteShelf
from kbqa.policy_store.store import NOT_PROMOTED, PolicyStore, PolicyVersion, open_store

__all__ = [
    "NOT_PROMOTED",
    "Changes",
    "LocalShelf",
    "Manifest",
    "PolicyStore",
    "PolicyVersion",
    "RemoteShelf",
    "TensorChange",
    "compare",
    "open_store",
]
