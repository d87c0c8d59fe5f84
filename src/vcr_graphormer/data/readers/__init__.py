"""Readers of graphs, one module per family of file formats."""
