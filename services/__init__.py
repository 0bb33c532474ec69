"""The four processes around `kbqa`, and the command line above them."""
