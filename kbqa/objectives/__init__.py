"""Objectives: what an optimiser step minimises."""

from kbqa.objectives.surrogate import Aggregation, SurrogateConfig, k3, surrogate_loss, token_weights

__all__ = ["Aggregation", "SurrogateConfig", "k3", "surrogate_loss", "token_weights"]
