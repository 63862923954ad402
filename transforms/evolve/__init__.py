"""Votes on whole texts: records -> votes on public texts, in rounds -> a corpus."""

from transforms.evolve.columns import COLUMNS
from transforms.evolve.text import EvolveText

__all__ = ['COLUMNS', 'EvolveText']
