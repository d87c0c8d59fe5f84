"""Attacks for `python -m benchmarks robustness`: samples of every format, damage, kills, full disks."""
