"""Access control that several services share: credentials of a request, API keys, rate limits."""
