"""Places of records that are no files of one format. A new one is a file of this folder and a line here."""

from transforms.read.sources import database, dataset, folder
from transforms.read.sources.source import Part, Source

SOURCES: tuple[Source, ...] = (database.Database(), dataset.Dataset(), folder.Folder())


def source_of(place: str) -> Source | None:
    """The source that a place is of; None for a file or a glob of files."""
    return next((source for source in SOURCES if source.owns(place)), None)


__all__ = ['SOURCES', 'Part', 'Source', 'source_of']
