"""The data of the demo and its settings."""
