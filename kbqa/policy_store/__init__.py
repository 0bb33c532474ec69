"""Where policies are kept: versions, integrity, promotion, retention. Knows no tensor library."""

from kbqa.policy_store.manifest import Manifest
from kbqa.policy_store.store import PolicyStore, PolicyVersion

__all__ = ["Manifest", "PolicyStore", "PolicyVersion"]
