"""The environment of processes that run this project's Python."""

import os
import pathlib
from collections.abc import Mapping


def python_path(environment: Mapping[str, str]) -> dict[str, str]:
    """The variable that lets any Python import this project.

    Args:
        environment: The environment of the process so far.
    """
    root = str(pathlib.Path(__file__).resolve().parents[2])
    known = environment.get('PYTHONPATH')
    return {'PYTHONPATH': os.pathsep.join([root, *([known] if known else [])])}
