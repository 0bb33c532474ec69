"""The policy that ships with kbqa: the reader, which answers on graphs that have no policy of their own.

It was trained on generated worlds alone (recipe `reader`, data set `worlds`) and is a version like any
other, in `kbqa/policies/reader`: an adapter of the encoder that the choosing recipes begin with, and one of
its re-ranker. `make reader` trains both again.
"""

from __future__ import annotations

from kbqa.bases import READER as _BASE
from kbqa.bases import find_base
from kbqa.errors import PolicyIntegrityError
from kbqa.policy_store.manifest import MANIFEST_NAME, Manifest
from kbqa.policy_store.store import PolicyVersion, compare_files

READER = "reader"
"""Its name as a policy."""


def shipped_reader() -> PolicyVersion:
    """The reader, its files compared with their checksums.

    Raises:
        BaseNotFoundError, PolicyIntegrityError: the installation of kbqa is damaged.
    """
    directory = find_base(_BASE).directory
    try:
        manifest = Manifest.model_validate_json((directory / MANIFEST_NAME).read_bytes())
    except (OSError, ValueError) as error:
        raise PolicyIntegrityError(
            f"{directory}: no readable manifest ({error}); install kbqa again"
        ) from error
    try:
        compare_files(directory, manifest.files)
    except PolicyIntegrityError as error:
        raise PolicyIntegrityError(f"{error}; install kbqa again") from error
    return PolicyVersion(directory, manifest)
