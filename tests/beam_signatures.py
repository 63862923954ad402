"""Beam's looks at the signatures of DoFns, each taken once."""

import inspect
import types
import weakref
from collections.abc import Callable
from typing import Any


def remember() -> None:
    """Has Beam read the signature of a method once, not at each of the looks that it takes at each DoFn.

    An eighth of the time of a run of a few batches. A bound method's signature is that of its function.
    """
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
