"""Runs: settings, presets, run folders, training from graph to metrics."""
