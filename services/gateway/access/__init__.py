"""Access to the gateway: who may ask, how much, and the audit log of requests."""
