"""The job server of pom.xml, and what is fetched when."""

import pathlib
import runpy
import shutil
import xml.etree.ElementTree
from typing import Any

import apache_beam
import pytest
import setuptools

from launch.flink import distribution, job_server


@pytest.mark.run
def test_a_repository_that_is_not_reached_is_no_reason_to_put_a_job_server_together(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if shutil.which('mvn') is None:
        pytest.skip('needs Maven, which is not on PATH')
    nowhere = [
        f'-D{scheme}.proxy{part}' for scheme in ('http', 'https') for part in ('Host=localhost', 'Port=1')
    ]
    monkeypatch.setenv('MAVEN_OPTS', ' '.join(nowhere))
    with pytest.raises(
        RuntimeError, match=r'Expected Maven to download org\.apache\.beam:.* Check the network'
    ):
        job_server.fetch_job_server(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr().err == ''


def test_a_job_server_that_was_fetched_is_used_again_without_maven(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv('PATH', str(tmp_path))
    assembled = tmp_path / job_server.ASSEMBLED
    assembled.touch()
    assert job_server.fetch_job_server(tmp_path) == assembled
    published = tmp_path / f'{job_server.JOB_SERVER}-{apache_beam.__version__}-bound.jar'
    published.touch()
    assert job_server.fetch_job_server(tmp_path) == published


def test_without_maven_nothing_is_made(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('PATH', str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match='Expected Maven'):
        job_server.fetch_job_server(pathlib.Path('nowhere'))
    assert not list(tmp_path.iterdir())


def test_the_modules_are_of_the_clusters_flink() -> None:
    pom = xml.etree.ElementTree.parse(job_server.POM)
    assert pom.findtext('{*}properties/{*}flink.minor') == distribution.FLINK_MINOR
    modules = pom.findtext('{*}properties/{*}beam.version')
    assert modules is not None and job_server.ASSEMBLED.endswith(f'-job-server-{modules}-assembled-bound.jar')


def test_every_version_of_the_pom_is_one() -> None:
    pom = xml.etree.ElementTree.parse(job_server.POM)
    for part in ('dependencies/{*}dependency', 'build/{*}plugins/{*}plugin'):
        found = pom.findall(f'{{*}}{part}')
        assert found and all(entry.findtext('{*}version') for entry in found)


def test_an_installed_package_has_the_pom_and_its_log_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, Any] = {}
    monkeypatch.setattr(setuptools, 'setup', lambda **values: told.update(values))
    runpy.run_path(str(job_server.POM.parents[2] / 'setup.py'))
    assert 'launch.flink' in told['packages']
    shipped = {
        path.name
        for pattern in told['package_data']['launch.flink']
        for path in job_server.POM.parent.glob(pattern)
    }
    assert shipped == {'pom.xml', 'simplelogger.properties'}
