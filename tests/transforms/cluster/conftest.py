"""A work directory with a run key and the centres of letters."""

import pathlib

import pytest

from models.privacy.randomness import RunKey
from tests.samples import SECRET
from tests.transforms.cluster.letters import CENTERS
from transforms.durable import ERRORS_FOLDER
from transforms.run_files import RUN


@pytest.fixture
def work_dir(tmp_path: pathlib.Path) -> str:
    RunKey(SECRET).write(tmp_path / 'run.key')
    (tmp_path / RUN).write_text('{}')
    for folder in (ERRORS_FOLDER, 'calls'):
        (tmp_path / folder).mkdir()
    CENTERS.write(tmp_path / 'centers')
    return str(tmp_path)
