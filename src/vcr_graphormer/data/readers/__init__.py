"""Readers: one file per kind of file."""
