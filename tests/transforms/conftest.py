"""A work directory with a run key, for the tests of this folder that have none of their own."""

import pathlib

import pytest

from models.privacy.randomness import RunKey
from tests.samples import SECRET
from transforms import durable


@pytest.fixture
def work_dir(tmp_path: pathlib.Path) -> str:
    durable.write_key(str(tmp_path), RunKey(SECRET))
    (tmp_path / durable.ERRORS_FOLDER).mkdir()
    return str(tmp_path)
