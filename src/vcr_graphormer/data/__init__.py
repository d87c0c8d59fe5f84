"""Graphs and splits: the data contract, tasks, readers, the catalogue of datasets."""
