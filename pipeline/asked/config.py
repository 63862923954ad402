"""A run's config from flat keys: of a TOML file, of flags, or of a call. `JobConfig.to_toml` is the way back.

Which of the keys belong to which panel nobody who writes them has to know.
"""

import contextlib
import dataclasses
import difflib
import itertools
import logging
import os
import pathlib
import re
import tomllib
import typing
from collections.abc import Collection, Mapping
from typing import Any

from pipeline.methods import METHODS
from pipeline.methods.follows import Asked, Follows
from pipeline.methods.method import Method
from pipeline.settings import panel
from pipeline.settings.budget import Budget
from pipeline.settings.input import Input
from pipeline.settings.job_config import OF_EVERY_RUN, JobConfig, delta_of
from pipeline.settings.output import Output
from pipeline.settings.runner import Runner
from transforms import places

METHOD, DEFAULT_METHOD = 'method', 'predict'
METHOD_PANEL = 'Method'
_LOGGER = logging.getLogger(__name__)
# Declared numbers from which others follow, if one of them is given.
_FOLLOWED = ('typical_words', 'examples')
# Panels whose settings mean the same for each method that has them, and those of their settings, and of every
# run's, that may follow from declared numbers.
_OF_SEVERAL_METHODS = ('Prompt', 'Structure', 'Model')
_MAY_FOLLOW = (
    'sample_rate', 'max_prompt_tokens', 'max_example_tokens', 'min_example_tokens', 'micro_batch_size',
)  # fmt: skip


def method_help() -> str:
    """Help of the key that names the method."""
    known = '; '.join(f'{name}, {method.summary}' for name, method in METHODS.items())
    return (
        f'What makes a corpus of the records: {known}. Without it the one that suits the declared numbers, '
        f'as `dp-corpus plan --compare` shows; {DEFAULT_METHOD} where they say nothing.'
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
    """One key and flag.

    Attributes:
        type: Type of its value; a `Literal` of its choices where it has any.
        panel: Title of its panel in `--help`.
        names_path: True if a text may name a file (`pipeline.settings.panel.setting`).
    """

    name: str
    type: Any
    panel: str
    help: str
    default: Any
    names_path: bool

    @property
    def is_list(self) -> bool:
        """True if its value is a list of texts."""
        return tuple[str, ...] in (self.type, *typing.get_args(self.type))


def settings_of(method: str) -> dict[str, Setting]:
    """Every setting of a method's runs, by name, in the order of `--help`."""
    first_settings = of_panels(Input, Budget)
    chosen = typing.Literal[tuple(METHODS)]  # type: ignore[valid-type]
    first_settings[METHOD] = Setting(
        name=METHOD, type=chosen, panel=METHOD_PANEL, help=method_help(), default=None,
        names_path=False,
    )  # fmt: skip
    method_settings = METHODS[method].settings
    settings = of_panels(method_settings)
    for name, text in method_settings.added_help.items():
        settings[name] = dataclasses.replace(settings[name], help=f'{settings[name].help} {text}')
    in_order = sorted(settings.items(), key=lambda item: method_settings.panels.index(item[1].panel))
    return first_settings | dict(in_order) | of_panels(Output, Runner)


def all_settings() -> dict[str, Setting]:
    """Every setting of every method's runs, by name; the help of one that several have tells all of them.

    Settings of methods stand between those of the input and those of the output.
    """
    settings: dict[str, Setting] = {}
    for method in METHODS:
        for name, setting in settings_of(method).items():
            if name not in settings:
                settings[name] = setting
            elif further := _further_help(setting.help, settings[name].help):
                both = f'{settings[name].help} With --method {method}: {further}'
                settings[name] = dataclasses.replace(settings[name], help=both)
    last = of_panels(Output, Runner)
    return {name: settings[name] for name in (*(name for name in settings if name not in last), *last)}


def _further_help(text: str, known: str) -> str:
    """The sentences of a help text after those that another one begins with too."""
    sentences, others = (re.split(r'(?<=\.) ', each) for each in (text, known))
    shared = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(sentences, others)))
    return ' '.join(sentences[shared:])


def of_panels(*panels: type) -> dict[str, Setting]:
    """The settings of dataclasses whose fields are made by `pipeline.settings.panel.setting`, by name."""
    return {
        field.name: Setting(
            name=field.name,
            type=hint,
            panel=field.metadata['panel'],
            help=field.metadata['help'],
            default=field.default,
            names_path=field.metadata['names_path'],
        )
        for each in panels
        for field, hint in zip(dataclasses.fields(each), panel.setting_types(each).values(), strict=True)
    }


def path_settings() -> frozenset[str]:
    """Names of the settings whose value may be a path: who sets one chooses what file is read or written.

    Every setting that takes any text is one of them unless its metadata says that it names
    something else, so that a schedule's form leaves a new one to whoever deploys it.
    """
    return frozenset(
        setting.name
        for setting in all_settings().values()
        if setting.names_path and _takes_any_text(setting.type)
    )


def _takes_any_text(hint: Any) -> bool:
    if typing.get_origin(hint) is typing.Literal:
        return False
    return hint is str or any(_takes_any_text(option) for option in typing.get_args(hint))


def job_config(**settings: Any) -> JobConfig[Any]:
    """A run's config from settings by their names.

    Settings that follow from declared lengths or from the texts wanted are filled in (`following`).
    """
    method, parts = _parts_of(settings)
    for part, followed in _following(method, parts).items():
        parts[part] |= {name: follows.value for name, follows in followed.items()}
    classes = _classes_of(method)
    return JobConfig(**{part: classes[part](**values) for part, values in parts.items()})


def following(**settings: Any) -> dict[str, Follows]:
    """Settings that follow from declared public numbers where nobody gave them, each with its reason."""
    method, parts = _parts_of(settings)
    return {name: each for followed in _following(method, parts).values() for name, each in followed.items()}


def _following(
    method: Method[Any, Any], parts: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, Follows]]:
    """Settings that follow from declared numbers, by part and name."""
    settings = parts[METHOD]
    if all(settings.get(name) is None for name in _FOLLOWED):
        return {}
    # Panels check their values here: rules need not.
    built = {part: kind(**parts[part]) for part, kind in _classes_of(method).items()}
    asked = Asked(
        input=built['input'],
        budget=built['budget'],
        method=built[METHOD],
        given=frozenset(
            name for values in parts.values() for name, value in values.items() if value is not None
        ),
        delta=delta_of(built['input'], built['budget']),
    )
    owners = _owners_of(method)
    followed: dict[str, dict[str, Follows]] = {}
    for name, follows in method.follows(asked).items():
        followed.setdefault(owners[name], {})[name] = follows
    return followed


def _classes_of(method: Method[Any, Any]) -> dict[str, Any]:
    return {**OF_EVERY_RUN, METHOD: method.settings}


def _owners_of(method: Method[Any, Any]) -> dict[str, str]:
    """The part of a config that has each setting."""
    return {
        field.name: part for part, kind in _classes_of(method).items() for field in dataclasses.fields(kind)
    }


def _parts_of(settings: Mapping[str, Any]) -> tuple[Method[Any, Any], dict[str, dict[str, Any]]]:
    """The method, and the given settings of each part of a config."""
    values = dict(settings)
    if isinstance(values.get('input'), str):
        values['input'] = without_password(values['input'])
    name = values.pop(METHOD, None)
    if name is None:
        name = implied_method(values) or DEFAULT_METHOD
    if name not in METHODS:
        shown = ' or '.join(map(repr, METHODS))
        raise ValueError(f'Expected {shown} for {METHOD}, got {METHOD}={name!r}. {method_help()}')
    method = METHODS[name]
    owners = _owners_of(method)
    parts: dict[str, dict[str, Any]] = {part: {} for part in _classes_of(method)}
    for key, value in values.items():
        if key in owners:
            parts[owners[key]][key] = value
        else:
            _refuse_of_another(method, key, value)
    return method, parts


def without_password(place: str) -> str:
    """The URL of a database without its password, which goes into this process's environment.

    So no config, and nothing that is made from one, ever holds it.
    """
    place, password = places.take_password(place)
    if password is not None:
        os.environ[places.PASSWORD_VARIABLE] = password
        _LOGGER.warning(
            'WARNING: The URL of the database holds a password, which other users of this machine can see in '
            'the list of processes, and a shell keeps. It is used now, and written nowhere. Leave it out '
            'next time, and set %s; workers on other machines need that anyway.',
            places.PASSWORD_VARIABLE,
        )
    return place


def implied_method(values: Mapping[str, Any]) -> str | None:
    """The method that a setting chooses by being given."""
    for name, method in METHODS.items():
        for field in dataclasses.fields(method.settings):
            if field.metadata['implies_method'] and values.get(field.name) is not None:
                return name
    return None


def _refuse_of_another(method: Method[Any, Any], key: str, value: Any) -> None:
    """Refuses a value of a setting that the method lacks; None is none."""
    owners = [name for name, other in METHODS.items() if key in _owners_of(other)]
    if not owners:
        raise ValueError(f'Expected a known setting, got {key!r}. See dp-corpus generate --help.')
    if value is None:
        return
    why = method.instead.get(key) or f'It is a setting of --method {" and ".join(owners)}.'
    raise ValueError(
        f'Expected no {key} with method={method.name!r}, got {key}={value!r}. {why} Leave it out.'
    )


def for_method(settings: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Settings for a run of a method, where they may be those of another one.

    What is of the other method alone is left out, and so is what followed for it from declared numbers: it
    follows anew.
    """
    other, known = settings.get(METHOD), settings_of(name)
    taken = {key: value for key, value in settings.items() if key in known}
    if other is not None and other != name:
        panels, own = settings_of(other), METHODS[other].settings.panels
        followed = _followed(settings)
        taken = {
            key: value
            for key, value in taken.items()
            if key in _FOLLOWED
            or (
                (panels[key].panel not in own or panels[key].panel in _OF_SEVERAL_METHODS)
                and (key not in followed or followed[key].value != value)
            )
        }
    return taken | {METHOD: name}


def _followed(settings: Mapping[str, Any]) -> dict[str, Follows]:
    """Settings that would follow for the method of some settings, if nothing of its own were given."""
    method = METHODS[settings[METHOD]]
    panels, alone = settings_of(method.name), {*method.settings.panels} - {*_OF_SEVERAL_METHODS}
    declared = {
        key: value
        for key, value in settings.items()
        if key in (METHOD, *_FOLLOWED) or (panels[key].panel not in alone and key not in _MAY_FOLLOW)
    }
    try:
        return following(**declared) | method.on_this_machine()
    except ValueError:
        return {}  # a run of the method will say why


def read_config(
    path: str | None, flags: Mapping[str, Any], keys: Collection[str] | None = None
) -> JobConfig[Any]:
    """Builds the config from a TOML file and flags; flags win.

    Args:
        path: The TOML file, or None.
        flags: Values by setting, lists also as texts with commas; None means that the flag was not given.
        keys: Settings that the command has; None for every setting.
    """
    return job_config(**read_settings(path, flags, keys))


def read_settings(
    path: str | None, flags: Mapping[str, Any], keys: Collection[str] | None = None
) -> dict[str, Any]:
    """The settings of a TOML file and flags by name; arguments and errors as of `read_config`.

    A file may be of another method than the flags name, or have settings that the command lacks: they stay
    in it, and a warning says which. An adapter names its model.
    """
    entries = {} if path is None else _entries(path)
    known = all_settings()
    for key in entries:
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            hint = f'Did you mean {near[0]}?' if near else 'See dp-corpus generate --help for the keys.'
            raise ValueError(f'Expected only known keys in config={path!r}, got key={key!r}. {hint}')
    for name, value in entries.items():
        if isinstance(value, list) and known[name].is_list:
            entries[name] = tuple(value)
    if isinstance(entries.get('labels'), dict):
        entries['labels'] = _labels_of(entries['labels'])
    for names in _alternatives().values():
        if any(flags.get(name) is not None for name in names):
            for name in names:
                entries.pop(name, None)  # a flag replaces its counterpart in the file
    given = {name: value for name, value in with_lists(flags, known).items() if value is not None}
    settings = _used(entries, given, keys, path) | given
    if given.get('adapter') is not None and 'model' not in given:
        # The run says that there is none.
        with contextlib.suppress(FileNotFoundError):
            settings['model'] = _model_of(given['adapter'])
    return settings


def _used(
    entries: Mapping[str, Any], flags: Mapping[str, Any], keys: Collection[str] | None, path: str | None
) -> dict[str, Any]:
    """Those settings of a file that a run takes; a warning names the others."""
    used = dict(entries)
    method = flags.get(METHOD) or implied_method(flags) or entries.get(METHOD)
    if method in METHODS:
        used = for_method(entries, method) if entries else {}
    unused = METHODS[method].unused_beside(flags) if method in METHODS else frozenset[str]()
    used = {
        key: value
        for key, value in used.items()
        if key == METHOD or (key not in unused and (keys is None or key in keys))
    }
    if left := [key for key in entries if key not in used and key not in flags]:
        _LOGGER.warning('WARNING: %s stays as it is; %s not used here.', path, _listed(left))
    return used


def _listed(keys: list[str]) -> str:
    return f'{", ".join(keys)} {"is" if len(keys) == 1 else "are"}'


def _model_of(adapter: str) -> str:
    """The model that an adapter was trained on."""
    from pipeline.methods.fine_tune import released

    return released.read_card(adapter).model


def _entries(path: str) -> dict[str, Any]:
    file = pathlib.Path(path)
    if not file.is_file():
        raise FileNotFoundError(f'Expected a TOML file, got config={path!r}, which is not there.')
    try:
        return tomllib.loads(file.read_text(encoding='utf-8'))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f'Expected TOML in config={path!r}, got: {error}.') from error


def with_lists(values: Mapping[str, Any], settings: Mapping[str, Setting]) -> dict[str, Any]:
    """Values by setting, with a tuple for each comma list, as flags and keyword arguments may give one."""
    values = dict(values)
    for name, value in values.items():
        if isinstance(value, str) and name in settings and settings[name].is_list:
            values[name] = tuple(part.strip() for part in value.split(',') if part.strip())
    return values


def _alternatives() -> dict[str, set[str]]:
    """Settings of which a run has one, since the others follow from it."""
    alternatives: dict[str, set[str]] = {}
    for method in METHODS.values():
        for field in dataclasses.fields(method.settings):
            if (other := field.metadata['instead_of']) is not None:
                alternatives.setdefault(other, {other}).add(field.name)
    return alternatives


def _labels_of(table: Mapping[str, Any]) -> tuple[str, ...]:
    """Labels as flags give them, VALUE=WORDS, from a table of words by value; of attributes one for each."""
    labels: list[str] = []
    for value, words in table.items():
        if isinstance(words, dict) and not any(isinstance(each, dict) for each in words.values()):
            labels += (f'{value}:{declared}' for declared in _labels_of(words))
        elif isinstance(words, str) and '=' not in value:
            labels.append(f'{value}={words}' if words else value)
        else:
            raise ValueError(
                f'Expected a table of words by label, got labels.{value}={words!r}. Write '
                '2 = "digestive system diseases", and no = in a label.'
            )
    return tuple(labels)
