"""Decoders: the interfaces, the table of families, and a folder for each family.

Here each family is put into the table, one line for each, so that no way of importing
`models.decoders.family` misses one.
"""

from models.decoders import family as _family
from models.decoders.gemma.family import GemmaFamily as _GemmaFamily

_family.register(_GemmaFamily())
