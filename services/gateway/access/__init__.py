"""Who may ask the gateway, how much, and what is written down of it."""
