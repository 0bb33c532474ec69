"""The gateway's routes, a module for each group; every one makes a router of the parts that it needs."""
