"""Pretrained models that policies and encoders begin with, found on this machine; nothing is downloaded."""

from kbqa.bases.finding import Base, Origin, find_base, sight, ways_to_get
from kbqa.bases.known import KNOWN, KnownBase

__all__ = ["KNOWN", "Base", "KnownBase", "Origin", "find_base", "sight", "ways_to_get"]
