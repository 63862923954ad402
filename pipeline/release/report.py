"""The privacy report of a finished run, and other files of text beside a corpus."""

import pathlib

from models.privacy.report import PrivacyReport
from transforms.places import check_filesystem
from transforms.run_files import REPORT


def read_report(output: str) -> PrivacyReport:
    """The privacy report of a run's output.

    Raises:
        FileNotFoundError: No finished run has written there.
        ValueError: The report is not one, or was edited.
    """
    return PrivacyReport.from_json(read_released(output, REPORT))


def read_released(output: str, name: str) -> str:
    """A file of text beside a corpus; a FileNotFoundError where no run has finished."""
    try:
        return _read(output, name).decode()
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f'Expected the corpus folder of a finished run, got no {name} in {output!r}. '
            'Give the folder that --output named.'
        ) from error


def _read(output: str, name: str) -> bytes:
    if '://' not in output:
        return (pathlib.Path(output) / name).read_bytes()
    check_filesystem(output)
    # Beam takes seconds to load, and only a bucket needs it.
    from apache_beam.io.filesystems import FileSystems

    from transforms.durable import read_file

    return read_file(FileSystems.join(output, name))
