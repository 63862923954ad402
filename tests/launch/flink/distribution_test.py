"""Flink from PyPI, and the Java that it runs on."""

import pathlib

import pytest

from launch.flink import distribution


def test_beam_knows_the_flink_that_is_started() -> None:
    from apache_beam.options.pipeline_options import FlinkRunnerOptions

    assert distribution.FLINK_MINOR in FlinkRunnerOptions.PUBLISHED_FLINK_VERSIONS


@pytest.mark.run
def test_a_download_that_fails_leaves_no_flink(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv('PIP_NO_INDEX', '1')
    monkeypatch.delenv('PIP_FIND_LINKS', raising=False)
    with pytest.raises(RuntimeError, match=r'Expected pip to download apache-flink'):
        distribution.fetch_flink(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_without_java_nothing_is_made(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('PATH', str(tmp_path))
    monkeypatch.delenv('JAVA_HOME', raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match='Expected Java'):
        distribution.check_java()
    assert not list(tmp_path.iterdir())
