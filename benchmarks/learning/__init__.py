"""Does what the papers found hold for a small policy on the generated world? See `design.yaml`."""
