"""Finds the pretrained models from which policies and encoders start, on this machine; downloads nothing."""

from kbqa.bases.finding import Base, Origin, find_base, sight, ways_to_get
from kbqa.bases.known import ENCODERS, KNOWN, READER, KnownBase

__all__ = ["ENCODERS", "KNOWN", "READER", "Base", "KnownBase", "Origin", "find_base", "sight", "ways_to_get"]
