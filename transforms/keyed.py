"""Steps that hash records with the run key."""

from collections.abc import Callable

import apache_beam as beam

from transforms.durable import guarded, read_key


class KeyedDoFn(beam.DoFn):
    """Reads the run key once per worker, and keeps the text of errors in the work directory.

    Args:
        work_dir: The curator's folder, which holds the run key.
        expected: The step's aim with a record, for its error: 'every record to ...'.
        name: Beginning of the names of its error files.
    """

    def __init__(self, work_dir: str, *, expected: str, name: str) -> None:
        self._work_dir = work_dir
        self._expected = expected
        self._name = name

    def setup(self) -> None:
        self._key = read_key(self._work_dir)  # a `RunKey` refuses to be pickled

    def _guarded[T](self, work: Callable[[], T]) -> T:
        return guarded(work, expected=self._expected, work_dir=self._work_dir, name=self._name)
