"""The gateway's routes: each module creates the router of one group from the parts that it needs."""
