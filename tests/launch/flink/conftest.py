"""One local run for all tests of this folder."""

import pytest

from tests.launch.flink.local_cluster import Run, run_locally


@pytest.fixture(scope='session')
def local_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_locally(tmp_path_factory.mktemp('local run'))
