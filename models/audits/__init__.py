"""Audits: what a proof cannot see, a program that does something else."""
