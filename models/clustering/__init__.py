"""Clustering of similar records: embedders and centres."""
