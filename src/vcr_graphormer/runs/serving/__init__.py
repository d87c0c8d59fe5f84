"""Serve a run: score known and new nodes in milliseconds, over HTTP."""
