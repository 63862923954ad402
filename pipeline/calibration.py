"""How fast this machine decodes, measured once and kept, and what an estimate rests on without that.

Rates are kept in the user's cache folder (`models/cache.py`), one file for each machine, model and type
of weights. Reading them imports no JAX: a plan answers at once.
"""

import dataclasses
import datetime
import hashlib
import importlib.metadata
import json
import os
import pathlib
import platform
import tempfile
from typing import Any

from models import cache
from models.decoders import device as device_lib
from models.decoders import family
from models.decoders.device import Dtype, RequestedDtype
from models.decoders.rates import Rates

# A file of another version has another name.
VERSION = 1
REMEDY = 'dp-corpus plan --calibrate'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Machine:
    """What the rates of a machine depend on, as far as can be told without JAX.

    Attributes:
        processor: Name of its processor.
        cores: Cores that this process may use.
        jax: Version of JAX; '' without it.
        platforms: Which of JAX's platforms the environment asks for (`JAX_PLATFORMS`); '' for any.
    """

    processor: str
    cores: int
    jax: str
    platforms: str

    @classmethod
    def this(cls) -> 'Machine':
        """The machine that this runs on."""
        affinity = getattr(os, 'sched_getaffinity', None)
        return cls(
            processor=_processor(),
            cores=len(affinity(0)) if affinity else os.cpu_count() or 1,
            jax=_version_of_jax(),
            platforms=os.environ.get('JAX_PLATFORMS', ''),
        )


def _version_of_jax() -> str:
    try:
        return importlib.metadata.version('jax')
    except importlib.metadata.PackageNotFoundError:
        return ''


def _processor() -> str:
    try:
        lines = pathlib.Path('/proc/cpuinfo').read_text(encoding='utf-8', errors='replace').splitlines()
    except OSError:  # not Linux
        lines = []
    names = [line.partition(':')[2].strip() for line in lines if line.startswith('model name')]
    return next((name for name in names if name), platform.processor() or platform.machine())


@dataclasses.dataclass(frozen=True, kw_only=True)
class Calibration:
    """Rates, and what they are of.

    Attributes:
        device: What decoded.
        dtype: Type of weights and products: 'float32' or 'bfloat16'.
        measured_on: ISO date; None for the reference rates, which are of another machine.
        rates: The rates.
    """

    device: str
    dtype: Dtype
    measured_on: str | None
    rates: Rates


# Medians of `dp-corpus plan --calibrate --model gemma3-270m`, beside other work on the same cores.
_REFERENCE_DEVICE = 'two busy cores of a 4th generation AMD EPYC'
REFERENCE = {
    'float32': Calibration(
        device=_REFERENCE_DEVICE,
        dtype='float32',
        measured_on=None,
        rates=Rates(
            prompt_flops=90e9,
            step_flops=73e9,
            output_flops=70e9,
            weight_bytes=15e9,
            cache_bytes=9e9,
            ranked_logits=0.25e9,
        ),
    ),
    'bfloat16': Calibration(
        device=_REFERENCE_DEVICE,
        dtype='bfloat16',
        measured_on=None,
        rates=Rates(
            prompt_flops=160e9,
            step_flops=120e9,
            output_flops=120e9,
            weight_bytes=6.6e9,
            cache_bytes=7.3e9,
            ranked_logits=0.25e9,
        ),
    ),
}


def file_of(machine: Machine, model: str, dtype: RequestedDtype) -> pathlib.Path:
    """Where the rates of a machine are kept; the file need not exist. `dtype` as it was asked for."""
    facts = json.dumps(dataclasses.asdict(machine), sort_keys=True)
    name = hashlib.sha256(facts.encode()).hexdigest()[:12]
    return cache.cache_folder() / f'rates-{VERSION}' / f'{model}-{dtype}-{name}.json'


def calibrate(model: str, *, dtype: RequestedDtype) -> Calibration:
    """Measures this machine's rates and keeps them; imports JAX and takes some ten seconds.

    Args:
        model: The model's name, whose dimensions are taken; its weights are not needed.
        dtype: 'float32', 'bfloat16', or 'auto' for what the device is fastest in.

    Raises:
        OSError: The cache folder cannot be written to.
    """
    machine, resolved = Machine.this(), device_lib.fastest_dtype() if dtype == 'auto' else dtype
    found = Calibration(
        device=_device(machine),
        dtype=resolved,
        measured_on=datetime.date.today().isoformat(),
        rates=family.family_of(model).measure_rates(model, dtype=resolved),
    )
    path = file_of(machine, model, dtype)
    path.parent.mkdir(parents=True, exist_ok=True)
    # In whole or not at all, whoever else measures.
    with tempfile.NamedTemporaryFile(
        'w', encoding='utf-8', dir=path.parent, suffix='.part', delete=False
    ) as file:
        json.dump(_document(machine, model, dtype, found), file, indent=2)
    os.replace(file.name, path)
    return found


def _device(machine: Machine) -> str:
    import jax

    device = jax.devices()[0]
    if device.platform != 'cpu':
        return str(device.device_kind)
    return f'{machine.processor}, {machine.cores} {"core" if machine.cores == 1 else "cores"}'


def _document(machine: Machine, model: str, dtype: RequestedDtype, found: Calibration) -> dict[str, Any]:
    of = {'machine': dataclasses.asdict(machine), 'model': model, 'requested_dtype': dtype}
    return of | dataclasses.asdict(found)


def known(model: str, *, dtype: RequestedDtype) -> Calibration:
    """This machine's rates where they were measured, else the reference rates.

    Of an accelerator nothing is known without JAX: 'auto' is then what this machine's processor is
    fastest in.

    Raises:
        ValueError: The kept file is damaged, or not of this machine, model and dtype.
    """
    machine = Machine.this()
    path = file_of(machine, model, dtype)
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return REFERENCE[device_lib.fastest_dtype('cpu') if dtype == 'auto' else dtype]
    try:
        return _parsed(json.loads(text), machine, model, dtype)
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(
            f'Expected rates that were measured on this machine, got file={str(path)!r}, '
            f'which is damaged or of something else. Measure anew with `{REMEDY}`, or remove it.'
        ) from error


def _parsed(found: Any, machine: Machine, model: str, dtype: RequestedDtype) -> Calibration:
    """A kept document; see `known` for errors."""
    calibration = Calibration(
        device=str(found['device']),
        dtype=REFERENCE[found['dtype']].dtype,
        measured_on=datetime.date.fromisoformat(found['measured_on']).isoformat(),
        rates=Rates(**found['rates']),
    )
    if found != _document(machine, model, dtype, calibration) or dtype not in ('auto', calibration.dtype):
        raise ValueError(
            f'Expected rates of model={model!r}, dtype={dtype!r}, {machine}, got others. Measure these.'
        )
    return calibration


# --- An estimate in words ----------------------------------------------------------


def source(device: str, measured_on: str | None) -> str:
    """What an estimate rests on."""
    if measured_on is None:
        return f'from rates of {device}; measure this machine: {REMEDY}'
    return f'from rates measured on this machine on {measured_on} ({device})'


def three_digits(value: float) -> str:
    """A number of an estimate: three digits, or more where it has no fraction left.

    >>> three_digits(0.03456), three_digits(15.02), three_digits(1041.7)
    ('0.0346', '15', '1,042')
    """
    return f'{value:.3g}' if value < 100 else f'{value:,.0f}'


def duration(hours: float) -> str:
    """Hours in words."""
    if hours < 1 / 60:
        return f'{3600 * hours:.2g} seconds'
    if hours < 1:
        return f'{60 * hours:.2g} minutes'
    return f'{hours:.2g} hours' if hours < 10 else f'{hours:,.0f} hours'
