"""Training runs: the loop from question-answer pairs to a policy, and the files that it leaves."""
