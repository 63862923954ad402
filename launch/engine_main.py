"""Entry point of a Flex Template, whose launcher passes our flags and Beam's flags in one list.

The launcher writes `--input=... --run_id=... --project=... --runner=...`. This module sorts them into
`dp-corpus generate FLAGS -- OPTIONS`:

* A name may be written with `-` or `_`. Its value may follow after `=` or as the next argument.
* A switch may have a value: `--keep_rejected=true`, `--no_use_public_ips=true`.
* A flag that is not ours goes to Beam. The job refuses a flag that Beam does not know either.
* `--runner` is ours, and we pass it on to Beam.
* `--labels` is ours. The launcher also uses it for the labels of a Dataflow job, as a JSON object, which goes
  to Beam.
"""

import argparse
import sys
import types
from collections.abc import Collection, Iterable, Iterator, Sequence

from pipeline import main as command_line
from pipeline.asked.config import all_settings
from pipeline.commands import exit_codes

# Flags of `dp-corpus generate` that are no field of the config.
VALUE_FLAGS = frozenset({'config'})
SWITCHES = frozenset({'json', 'quiet'})


def split_arguments(
    arguments: Sequence[str], beam_switches: Collection[str] = ()
) -> tuple[list[str], list[str]]:
    """One list of flags -> the flags of `dp-corpus generate`, and the options of Beam.

    `beam_switches` are the names of Beam's options that take no value.
    """
    ours: list[str] = []
    beams: list[str] = []
    with_value, switches = _value_flags(), _switches()
    for name, value in _pairs(arguments):
        if name == 'labels' and (value or '').startswith('{'):
            beams.append(f'--labels={value}')
        elif name in with_value:
            if not value:
                # The command line would take an empty text as a value, which nobody means.
                raise ValueError(
                    f'Expected a value for {name}, got {name}={value!r}. Leave the flag out, or give one.'
                )
            ours.append(f'--{name.replace("_", "-")}={value}')
        elif name in switches:
            on, off = switches[name]
            if (flag := on if _truth(name, value) else off) is not None:
                ours.append(flag)
        elif name in beam_switches:
            if _truth(name, value):
                beams.append(f'--{name}')
        else:
            beams.append(f'--{name}' if value is None else f'--{name}={value}')
    return ours, beams


def beam_switch_names() -> frozenset[str]:
    """Names of Beam's options that take no value, as Beam defines them."""
    from apache_beam.options.pipeline_options import PipelineOptions

    parser = argparse.ArgumentParser(conflict_handler='resolve', add_help=False)
    for options in _subclasses(PipelineOptions):
        if '_add_argparse_args' in vars(options):
            options._add_argparse_args(parser)  # type: ignore[attr-defined]
    return frozenset(
        option.removeprefix('--')
        for action in parser._actions
        if action.nargs == 0
        for option in action.option_strings
    )


def _subclasses(cls: type) -> Iterator[type]:
    for subclass in cls.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)


def _boolean_fields() -> set[str]:
    return {
        name
        for name, setting in all_settings().items()
        if setting.type is bool or setting.type == bool | types.NoneType
    }


def _value_flags() -> set[str]:
    return set(all_settings()) - _boolean_fields() | VALUE_FLAGS


def _switches() -> dict[str, tuple[str, str | None]]:
    """Name of a switch of ours -> its flags for true and for false."""
    switches: dict[str, tuple[str, str | None]] = {name: (f'--{name}', None) for name in SWITCHES}
    for name in _boolean_fields():
        on, off = f'--{name.replace("_", "-")}', f'--no-{name.replace("_", "-")}'
        switches |= {name: (on, off), f'no_{name}': (off, on)}
    return switches


def _pairs(arguments: Iterable[str]) -> Iterator[tuple[str, str | None]]:
    """Arguments -> (name with underscores, value or None)."""
    name: str | None = None
    for argument in arguments:
        if argument == '--':
            continue  # the list may be sorted already
        if not argument.startswith('--'):
            if name is None:
                raise ValueError(
                    f'Expected flags, --name=value, got argument={argument!r}, which belongs to none. '
                    'Check the parameters of the template.'
                )
            yield name, argument
            name = None
            continue
        if name is not None:
            yield name, None
        written, equals, value = argument.removeprefix('--').partition('=')
        name = written.replace('-', '_')
        if equals:
            yield name, value
            name = None
    if name is not None:
        yield name, None


def _truth(name: str, value: str | None) -> bool:
    if value is None or value.lower() == 'true':
        return True
    if value.lower() == 'false':
        return False
    raise ValueError(f'Expected true or false for the switch {name}, got {name}={value!r}. Give one of them.')


def main() -> None:
    """Runs `dp-corpus generate` with the flags that the launcher passed, and ends with its exit code."""
    try:
        ours, beams = split_arguments(sys.argv[1:], beam_switch_names())
    except ValueError as error:
        print(f'Error: {error}', file=sys.stderr)
        sys.exit(exit_codes.USAGE)
    sys.argv = ['dp-corpus', 'generate', *ours, '--', *beams]
    command_line.main()


if __name__ == '__main__':
    main()
