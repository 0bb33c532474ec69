"""Question answering over knowledge graphs by agents that learn from answers alone."""

__version__ = "0.1.0"
