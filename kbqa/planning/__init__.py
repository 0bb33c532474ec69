"""What a recipe needs of a machine: memory, time, disk and the engine's context. Nothing is loaded for it."""
