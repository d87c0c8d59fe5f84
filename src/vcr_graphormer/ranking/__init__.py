"""Personalized PageRank on rewired graphs, and other ways to rank the nodes of a graph."""
