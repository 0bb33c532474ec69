"""From files to versions of graphs."""
