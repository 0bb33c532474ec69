"""Batches of questions: their files, and the tasks that answer their lines."""
