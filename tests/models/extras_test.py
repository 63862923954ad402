"""The table of extras against setup.py, and what is said where one is not installed."""

import functools
import importlib.metadata
import sys

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from models import extras
from models.extras import LIBRARIES, MissingExtraError
from tests import setup_file

_DISTRIBUTIONS = functools.cache(importlib.metadata.packages_distributions)


def _owners(library: str) -> set[str]:
    """The installed distributions that hold a library."""
    wanted = f'{library.replace(".", "/")}/__init__.py'
    names = _DISTRIBUTIONS()[library.partition('.')[0]]
    return {
        canonicalize_name(name)
        for name in names
        if any(str(path) == wanted for path in importlib.metadata.files(name) or ())
    }


def test_the_table_has_every_extra_but_those_that_are_all_of_them() -> None:
    # Compilers for absent devices stay beside an installation.
    others = {setup_file.INSTALL, 'all', 'compile', 'test'}
    assert LIBRARIES.keys() == setup_file.requirements().keys() - others


@pytest.mark.first
@pytest.mark.heavy
@pytest.mark.parametrize('extra', LIBRARIES)
def test_an_extra_brings_its_libraries_and_an_installation_without_it_has_none(extra: str) -> None:
    base, brought = setup_file.brought(setup_file.INSTALL), setup_file.brought(extra)
    listed = {library: _owners(library) for library in LIBRARIES[extra]}
    for library, owners in listed.items():
        assert owners and owners <= brought - base, library
    asked = {canonicalize_name(Requirement(text).name) for text in setup_file.requirements()[extra]}
    # Everything that setup.py names there is looked for, but what a machine with a GPU may lack. An extra
    # that asks for another's is in the base itself.
    without = {'gemma', 'tensorflow', 'tensorflow-text'}
    assert asked - base - without <= set().union(*listed.values())


def test_one_extra_has_everything_that_the_others_have() -> None:
    asked = setup_file.requirements()
    assert set(asked['all']) == {text for extra in LIBRARIES for text in asked[extra]}
    assert set(asked['all']) < set(asked['test'])


def test_the_base_has_no_model() -> None:
    base = setup_file.brought(setup_file.INSTALL)
    assert base and not base & {'gemma', 'jax', 'jaxlib', 'openai', 'pandas', 'tensorflow', 'torch'}


def test_what_is_missing_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    extras.need(*LIBRARIES, use='everything')
    assert extras.install_command(*LIBRARIES) is None
    monkeypatch.setitem(sys.modules, 'tokenizers', None)
    monkeypatch.setitem(sys.modules, 'openai', None)
    with pytest.raises(MissingExtraError) as refused:
        extras.need('endpoint', 'minilm', use='that run')
    assert str(refused.value) == (
        "Expected an installation with what that run needs, got one without libraries=['openai', "
        "'tokenizers']. Run pip install 'dp-corpus[endpoint,minilm]'."
    )
    extras.need('minilm', use='JAX', only='jax')
    assert extras.missing('minilm', only='jax') == ()


def test_a_library_in_a_package_that_is_missing_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    # Another test of the same process may have imported it.
    monkeypatch.delitem(sys.modules, 'orbax.checkpoint', raising=False)
    monkeypatch.setitem(sys.modules, 'orbax', None)
    assert extras.missing('gemma') == ('orbax.checkpoint',)
