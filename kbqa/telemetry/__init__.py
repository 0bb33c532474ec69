"""What a process tells of itself: metrics, all of whose names are in one table, and logs."""
