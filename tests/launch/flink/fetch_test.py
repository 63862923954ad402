"""Flink and the job server: what is fetched when, and that all name the same versions."""

import pathlib
import shutil
import xml.etree.ElementTree

import pytest
import yaml

from launch.flink import fetch

FOLDER = fetch.POM.parent
POM = xml.etree.ElementTree.parse(fetch.POM)


@pytest.mark.run
def test_a_download_that_fails_leaves_no_flink(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv('PIP_NO_INDEX', '1')
    monkeypatch.delenv('PIP_FIND_LINKS', raising=False)
    with pytest.raises(RuntimeError, match=r'Expected pip to download apache-flink'):
        fetch.fetch_flink(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.run
def test_a_repository_that_is_not_reached_leaves_no_job_server(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which('mvn') is None:
        pytest.skip('needs Maven, which is not on PATH')
    nowhere = [
        f'-D{scheme}.proxy{part}' for scheme in ('http', 'https') for part in ('Host=localhost', 'Port=1')
    ]
    monkeypatch.setenv('MAVEN_OPTS', f'-Dmaven.repo.local={tmp_path}/modules {" ".join(nowhere)}')
    with pytest.raises(RuntimeError, match=r'Expected Maven to download beam-.* Check the network'):
        fetch.fetch_job_server(tmp_path / 'cache')
    assert list((tmp_path / 'cache').iterdir()) == []


def test_without_maven_nothing_is_made_and_a_job_server_that_is_there_is_used(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv('PATH', str(tmp_path))
    with pytest.raises(FileNotFoundError, match='Expected Maven') as refused:
        fetch.fetch_job_server(tmp_path / 'cache')
    assert not (tmp_path / 'cache').exists()
    named = pathlib.Path(str(refused.value).split("'")[-2])
    named.parent.mkdir()
    named.touch()
    assert fetch.fetch_job_server(tmp_path / 'cache') == named


def test_all_parts_are_of_one_flink_that_beam_knows() -> None:
    from apache_beam.options.pipeline_options import FlinkRunnerOptions

    assert fetch.FLINK_MINOR in FlinkRunnerOptions.PUBLISHED_FLINK_VERSIONS
    assert POM.findtext('{*}properties/{*}flink.minor') == fetch.FLINK_MINOR
    assert f'--flink_version={fetch.FLINK_MINOR} ' in (FOLDER / 'flink.sh').read_text()


def test_every_version_of_the_pom_is_one() -> None:
    for part in ('dependencies/{*}dependency', 'build/{*}plugins/{*}plugin'):
        entries = POM.findall(f'{{*}}{part}')
        assert entries and all(entry.findtext('{*}version') for entry in entries)


def test_the_settings_name_no_address_but_localhost() -> None:
    settings = yaml.safe_load((FOLDER / 'conf' / 'config.yaml').read_text())
    names = ('jobmanager.bind-host', 'taskmanager.bind-host', 'rest.bind-address', 'rest.address')
    assert {settings[name] for name in names} == {'localhost'}
    assert set((FOLDER / 'conf' / 'workers').read_text().split()) == {'localhost'}
