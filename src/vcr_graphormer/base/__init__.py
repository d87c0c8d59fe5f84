"""Checks, files, folders, long jobs and what the machine has. Knows nothing of graphs."""
