"""The time of a run: its tokens, times the seconds of a token in an earlier run on this machine.

A run that ends here leaves the seconds of a token in the user's cache folder (`models/cache.py`), a file for
each kind of work, model, type of weights and processor, and nothing else of the run (METHOD 8). Nothing is
measured for an estimate. JAX is not imported for one: a plan answers at once.
"""

import dataclasses
import json
import math
import os
import pathlib
import platform
import re
import tempfile
from collections.abc import Mapping

from models import cache, speed
from models.decoders.device import Dtype
from models.speed import Work


@dataclasses.dataclass(frozen=True, kw_only=True)
class Speed:
    """The speed of a run on this machine, in seconds for a token of all rows together."""

    device: str
    seconds_of_token: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Estimate:
    """Time and memory of a run on this machine. All fields are public.

    Loading the model, compiling, reading and embedding records come on top.

    Attributes:
        model: The model's name.
        dtype: Type of its weights.
        device: The device of the earlier run; None where no run here has done such work.
        training_hours: 0 without training; None where no run here has trained the model.
        decoding_hours: 0 without decoding; None where no run here has decoded with it.
        memory_bytes: Bytes that weights and the texts of one batch take, at the least.
    """

    model: str
    dtype: Dtype
    device: str | None
    training_hours: float | None
    decoding_hours: float | None
    memory_bytes: int

    @property
    def hours(self) -> float | None:
        if self.training_hours is None or self.decoding_hours is None:
            return None
        return self.training_hours + self.decoding_hours

    @property
    def decoding_share(self) -> float:
        """Seconds of decoding for each second of training; 0 where one of them is not known or not done."""
        return (self.decoding_hours or 0.0) / self.training_hours if self.training_hours else 0.0

    def rows(self) -> list[tuple[str, str]]:
        """The estimate, and what it rests on, as rows of a plan's table."""
        of_model, rows = f'{self.model} in {self.dtype}', []
        for name, hours, done in (
            ('Training', self.training_hours, 'trained'),
            ('Decoding', self.decoding_hours, 'decoded with'),
        ):
            if hours is None:
                rows.append((name, f'not known: no run on this machine has {done} {of_model} yet'))
            elif hours:
                rows.append((name, f'about {duration(hours)}'))
        if self.device is not None:
            rows.append(('', f'as fast as an earlier run of {of_model} on this machine ({self.device})'))
        if self.memory_bytes:
            rows.append(('Memory', f'{memory(self.memory_bytes)} at the least'))
        return rows


def estimated(model: str, dtype: Dtype, tokens: Mapping[Work, int], memory_bytes: int) -> Estimate:
    """Time and memory of a run on this machine."""
    known = {work: known_speed(model, dtype, work) for work in tokens}

    def hours(work: Work) -> float | None:
        if not tokens.get(work):
            return 0.0
        of_work = known[work]
        return None if of_work is None else tokens[work] * of_work.seconds_of_token / 3600

    return Estimate(
        model=model,
        dtype=dtype,
        device=next((each.device for each in known.values() if each is not None), None),
        training_hours=hours('training'),
        decoding_hours=hours('decoding'),
        memory_bytes=memory_bytes,
    )


# --- What runs leave ---------------------------------------------------------------


def file_of(model: str, dtype: Dtype, work: Work) -> pathlib.Path:
    """The file with the speed of this machine; it need not exist."""
    name = f'{model} {dtype} {work} {_processor()} {os.environ.get("JAX_PLATFORMS", "")}'
    return cache.cache_folder() / 'speed' / f'{re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-")}.json'


def keep(model: str, dtype: Dtype) -> None:
    """Keeps the speed of the run that this process has just carried out; an OSError if it cannot."""
    for work, seconds in speed.seconds_of_token().items():
        path = file_of(model, dtype, work)
        path.parent.mkdir(parents=True, exist_ok=True)
        # In whole or not at all, whichever other run ends.
        with tempfile.NamedTemporaryFile(
            'w', encoding='utf-8', dir=path.parent, suffix='.part', delete=False
        ) as file:
            json.dump(dataclasses.asdict(Speed(device=_device(), seconds_of_token=seconds)), file)
        os.replace(file.name, path)


def known_speed(model: str, dtype: Dtype, work: Work) -> Speed | None:
    """The speed of the last such run on this machine; None without one, a ValueError of a damaged file."""
    path = file_of(model, dtype, work)
    try:
        document = json.loads(path.read_bytes())
        speed = Speed(device=str(document['device']), seconds_of_token=float(document['seconds_of_token']))
        if not (math.isfinite(speed.seconds_of_token) and speed.seconds_of_token > 0):
            raise ValueError(speed.seconds_of_token)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(
            f'Expected seconds of a token that a run left, got file={str(path)!r}, which is damaged. Remove '
            'it: the next run of this model leaves another.'
        ) from error
    return speed


def _device() -> str:
    import jax

    device = jax.devices()[0]
    return _processor() if device.platform == 'cpu' else str(device.device_kind)


def _processor() -> str:
    """Name of this machine's processor, and how many of its cores this process may use."""
    try:
        lines = pathlib.Path('/proc/cpuinfo').read_text(encoding='utf-8', errors='replace').splitlines()
    except OSError:  # not Linux
        lines = []
    names = [line.partition(':')[2].strip() for line in lines if line.startswith('model name')]
    affinity = getattr(os, 'sched_getaffinity', None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    name = next((name for name in names if name), platform.processor() or platform.machine())
    return f'{name}, {cores} {"core" if cores == 1 else "cores"}'


# --- In words ----------------------------------------------------------------------


def three_digits(value: float) -> str:
    """Three digits of a number, or more where it has no fraction left."""
    return f'{value:.3g}' if value < 100 else f'{value:,.0f}'


def memory(size: int) -> str:
    """Bytes in words."""
    return f'{size / 2**30:.1f} GiB' if size >= 2**30 / 10 else f'{size / 2**20:.0f} MiB'


def duration(hours: float) -> str:
    """Hours in words."""
    if hours < 1 / 60:
        return f'{3600 * hours:.2g} seconds'
    if hours < 1:
        return f'{60 * hours:.2g} minutes'
    return f'{hours:.2g} hours' if hours < 10 else f'{hours:,.0f} hours'
