"""A work directory with a run key, for the tests of this folder that have none of their own."""

import pathlib

import pytest

from tests.transforms.samples import make_work_dir


@pytest.fixture
def work_dir(tmp_path: pathlib.Path) -> str:
    return make_work_dir(tmp_path)
