import pathlib

import pytest

from models import cache


def test_the_folder_is_the_users_own_choice_or_the_desktops_rule(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv('HOME', str(tmp_path / 'home'))
    monkeypatch.delenv(cache.VARIABLE, raising=False)
    monkeypatch.delenv('XDG_CACHE_HOME', raising=False)
    assert cache.cache_folder() == tmp_path / 'home' / '.cache' / 'dp-corpus'
    for nothing in ('', 'relative/folder'):
        monkeypatch.setenv('XDG_CACHE_HOME', nothing)
        assert cache.cache_folder() == tmp_path / 'home' / '.cache' / 'dp-corpus'
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path / 'shared'))
    assert cache.cache_folder() == tmp_path / 'shared' / 'dp-corpus'
    monkeypatch.setenv(cache.VARIABLE, '~/own')
    assert cache.cache_folder() == tmp_path / 'home' / 'own'
