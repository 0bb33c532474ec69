"""Policies: the port, a tokenizer, and the engines behind them."""
