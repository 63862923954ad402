"""What the user asked for: one typed config, read from TOML and flags, validated when built.

Every field of `JobConfig` is a key of the TOML file and a flag of the command line,
with the same name. All of them are public; the run key is not among them.
"""

import dataclasses
import difflib
import functools
import json
import math
import pathlib
import re
import tomllib
import types
import typing
from collections.abc import Mapping
from typing import Any

from models import bundled
from models.decoders.gemma.architectures import ARCHITECTURES, Architecture
from models.privacy import accounting
from models.privacy.params import MechanismParams

Panel = typing.Literal['Input', 'Privacy', 'Generation', 'Model', 'Output', 'Runner']

DEFAULT_BATCH_TOKENS_PER_PRIVATE_TOKEN = 8
# PP section 5 and CL appendix E.2; METHOD 4b says about a tenth of the mean's.
DEFAULT_CLIP_BOUNDS = {'mean': 10.0, 'median': 6.0, 'difference': 1.0}
DEFAULT_CLUSTERING_RHO = 0.005
# Names of `models.prompts.PRESETS`, which takes NumPy along: --help answers at once.
PROMPT_PRESETS = (
    'pretrained',
    'pretrained-json',
    'instruction',
    'instruction-pairs',
    'instruction-phrase',
    'instruction-json',
)
BUNDLED = bundled.FOLDER
_RUN_ID = re.compile(r'[A-Za-z0-9][A-Za-z0-9._-]{0,99}')
_ACCELERATOR = re.compile(r'type:[a-z0-9-]+;count:[1-9][0-9]*(;[a-z0-9:.-]+)*')
_PASSWORD = re.compile(r'^[^:/?#]+://[^/?#@]*:[^/?#]*@|[?&](?:password|sslpassword)=')


def _setting(
    panel: Panel, help_text: str, default: Any = dataclasses.MISSING, *, names_path: bool = True
) -> Any:
    """A setting; one that takes any text counts as the name of a file until it says otherwise."""
    return dataclasses.field(
        default=default, metadata={'panel': panel, 'help': help_text, 'names_path': names_path}
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobConfig:
    """One run's settings. Each field's help text is its documentation.

    `input` and `output` may be None for `plan`, which reads and writes nothing.
    """

    input: str | None = _setting(
        'Input',
        'Files of sensitive records: JSONL, CSV or Parquet, also compressed; globs and comma lists.',
        None,
    )
    text_field: str = _setting(
        'Input',
        "Column of the text. Numbers ('0') mean a CSV without a header row.",
        'text',
        names_path=False,
    )
    label_field: str | None = _setting('Input', 'Column of the label.', None, names_path=False)
    labels: tuple[str, ...] = _setting(
        'Input',
        'Declared labels, comma-separated; VALUE=WORDS says what prompts call one. Others are rejected.',
        (),
        names_path=False,
    )
    unit_field: str | None = _setting(
        'Input', 'Column of the unit id (of the user, say).', None, names_path=False
    )
    record_id_field: str | None = _setting(
        'Input',
        "Column of the row's own id, which spreads duplicated texts over batches.",
        None,
        names_path=False,
    )
    records: int | None = _setting(
        'Input', 'Declared number of records (users, under the user unit): public, never counted.', None
    )
    max_record_bytes: int = _setting('Input', 'Longer records are rejected.', 100_000)
    keep_rejected: bool = _setting(
        'Input', 'Keep rejected rows in the work directory, restricted to the curator.', False
    )

    unit: typing.Literal['example', 'user'] = _setting(
        'Privacy', 'Unit of privacy: one record, or all records that share a unit id.', 'example'
    )
    examples_per_context: int = _setting(
        'Privacy', 'k: records that may share one context. Without unit ids, k > 1 costs 4 times the rho.', 1
    )
    epsilon: float | None = _setting(
        'Privacy', 'Target epsilon; the run then solves for --max-private-tokens.', None
    )
    delta: float | None = _setting(
        'Privacy', 'delta. Without it, records ** -1.1 of the declared --records.', None
    )
    batch_size: int = _setting(
        'Privacy', 's: expected contexts per batch, the public divisor of every vote.', 64
    )
    clip_bound: float | None = _setting(
        'Privacy',
        'c: votes are clipped to [-c, c]. Default: 10 for the mean, 6 for the median, 1 for the difference.',
        None,
    )
    temperature: float = _setting('Privacy', 'Temperature of private tokens.', 2.0)
    threshold: float | None = _setting(
        'Privacy', 'Distance in [0, 2] above which a token is private; without it every token is.', None
    )
    threshold_noise_scale: float | None = _setting(
        'Privacy', 'Laplace scale of the threshold; needs --threshold.', None
    )
    max_private_tokens: int | None = _setting(
        'Privacy', 'r: cap on private tokens of a batch. The guarantee is stated for it.', None
    )
    batches_per_label: int | None = _setting(
        'Privacy',
        'Batches of each label. Without it they follow from a noisy count, charged to the budget.',
        None,
    )
    count_rho: float = _setting(
        'Privacy', 'rho of the noisy count, where one is drawn without --clusters.', 0.005
    )
    aggregate: typing.Literal['mean', 'median', 'difference'] = _setting(
        'Privacy',
        'How the votes of a batch are combined. The loss of a median is known afterwards only, and only to '
        'the curator; the difference from the public prompt needs a far smaller c.',
        'mean',
    )
    clusters: int | None = _setting(
        'Privacy',
        'Group similar records: public centres kept for each label. Without it, labels alone make groups.',
        None,
    )
    clustering_rho: float | None = _setting(
        'Privacy',
        'rho of the two noisy counts of --clusters, half for each. Default: 0.005.',
        None,
    )
    centers: str | None = _setting(
        'Privacy',
        "Folder of public centres, as `dp-corpus centers` writes it. Default: the package's, for tfidf.",
        None,
    )
    embedder: str | None = _setting(
        'Privacy',
        "What tells how alike texts are: tfidf, minilm, decoder (the model's own), or a folder of MiniLM "
        'weights. Default: tfidf.',
        None,
    )
    dataset: str | None = _setting(
        'Privacy',
        "Name of the records in a ledger, which charges this run to the dataset's budget before its first "
        'token. Needs --ledger.',
        None,
        names_path=False,
    )
    ledger: str | None = _setting(
        'Privacy', 'Ledger of all runs: a SQLite file, or a database URL (postgresql://user@host/name).', None
    )

    prompt: str = _setting(
        'Generation',
        f'Prompt preset ({", ".join(PROMPT_PRESETS)}), or a TOML file with private, public and example.',
        'pretrained',
    )
    label_name: str = _setting(
        'Generation', "What prompts call the label, such as 'News Type'.", 'Label', names_path=False
    )
    text_name: str = _setting(
        'Generation', "What prompts call a text, such as 'Question'.", 'Text', names_path=False
    )
    schema: str | None = _setting(
        'Generation', 'File with the text that stands for {schema} in a prompt.', None
    )
    public_temperature: float = _setting('Generation', 'Temperature of public tokens.', 1.5)
    public_top_k: int | None = _setting(
        'Generation', 'Sample only from the K most probable public tokens.', None
    )
    max_prompt_tokens: int = _setting('Generation', 'Length of a prompt; longer texts are cut.', 160)
    max_example_tokens: int = _setting('Generation', 'Length cap of one synthetic example.', 96)
    max_batch_tokens: int | None = _setting(
        'Generation',
        'Cap on all tokens of a batch, public ones too. Default: r, or 8 r with --threshold.',
        None,
    )

    model: str = _setting('Model', f'Model size: {", ".join(ARCHITECTURES)}.', 'bundled', names_path=False)
    checkpoint: str | None = _setting(
        'Model', 'Orbax directory or safetensors folder; the bundled model has its own.', None
    )
    tokenizer: str | None = _setting('Model', 'SentencePiece file; the bundled model has its own.', None)
    dtype: typing.Literal['float32', 'bfloat16'] = _setting(
        'Model', 'Type of weights and computation.', 'float32'
    )
    micro_batch_size: int | None = _setting(
        'Model', 'Prompts that go through the model together. Default: enough for a typical batch.', None
    )

    output: str | None = _setting(
        'Output', 'Folder of the corpus and its report. Must be empty or of this run.', None
    )
    work_dir: str | None = _setting(
        'Output',
        "Folder of the run key, plan and finished batches; the curator's own. Default: OUTPUT.curator.",
        None,
    )
    run_id: str | None = _setting(
        'Output',
        "Public name of the run. Default: the output folder's name.",
        None,
        names_path=False,
    )
    shards: int = _setting('Output', 'Parquet files of the corpus.', 8)

    runner: str = _setting(
        'Runner', "Beam runner. Beam's own options follow after --.", 'FnApiRunner', names_path=False
    )
    accelerator: str | None = _setting(
        'Runner',
        "What the decoding step asks of the engine, in Dataflow's words: "
        'type:nvidia-l4;count:1;install-nvidia-driver.',
        None,
        names_path=False,
    )

    def __post_init__(self) -> None:
        _check_types(self)
        check_model(self.model, self.checkpoint, self.tokenizer)
        if self.aggregate == 'median' and self.epsilon is not None:
            raise ValueError(
                f"Expected no epsilon with aggregate='median', got epsilon={self.epsilon!r}. A median's loss "
                'is a function of the records and the output, so no number of tokens can be solved for in '
                'advance: give --max-private-tokens, and the curator learns the loss after the run.'
            )
        self._check_ledger()
        if self.accelerator is not None and not _ACCELERATOR.fullmatch(self.accelerator):
            raise ValueError(
                f'Expected accelerator as type:NAME;count:N and options, got '
                f'accelerator={self.accelerator!r}. Write type:nvidia-l4;count:1;install-nvidia-driver.'
            )
        if (self.epsilon is None) == (self.max_private_tokens is None):
            raise ValueError(
                f'Expected either epsilon or max_private_tokens, got epsilon={self.epsilon!r}, '
                f'max_private_tokens={self.max_private_tokens!r}. Each follows from the other: give one.'
            )
        if self.delta is None and self.records is None:
            raise ValueError(
                'Expected delta or a declared number of records, got delta=None, records=None. '
                'Give --delta, or --records N for delta = N ** -1.1. The true number is private, never used.'
            )
        if self.delta is not None and not 0 < self.delta < 1:
            raise ValueError(
                f'Expected 0 < delta < 1, got delta={self.delta}. A usual choice is records ** -1.1.'
            )
        if self.records is not None and self.records < 2:
            raise ValueError(
                f'Expected records >= 2, got records={self.records}. Declare the public size of the input.'
            )
        if bool(self.labels) != (self.label_field is not None):
            raise ValueError(
                f'Expected labels and label_field together or not at all, got labels={list(self.labels)!r}, '
                f'label_field={self.label_field!r}. Labels are declared, never read from the records.'
            )
        if len(set(self.label_values)) < len(self.label_values):
            raise ValueError(
                f'Expected distinct labels, got labels={list(self.labels)!r}. Declare each label once.'
            )
        if self.unit == 'user' and self.centers_source == 'dp-k-means':
            raise ValueError(
                f"Expected public centres with unit='user', got centers={self.centers!r} of DP k-means, "
                "whose price is that of one record. Use public centres, or unit='example'."
            )
        if (self.unit == 'user') != (self.unit_field is not None):
            raise ValueError(
                f"Expected unit_field exactly with unit='user', got unit={self.unit!r}, "
                f'unit_field={self.unit_field!r}. Name the column of the user ids and pass --unit user.'
            )
        if self.batches_per_label is None and not (self.count_rho > 0 and math.isfinite(self.count_rho)):
            raise ValueError(
                f'Expected count_rho > 0 for the noisy count, got count_rho={self.count_rho}. '
                'Or give --batches-per-label, which needs no count.'
            )
        if self.clusters is None:
            for name in ('clustering_rho', 'centers', 'embedder'):
                if (value := getattr(self, name)) is not None:
                    raise ValueError(
                        f'Expected {name} with clusters only, got {name}={value!r}, clusters=None. '
                        'Give --clusters too, or leave it out.'
                    )
        elif self.batches_per_label is not None:
            raise ValueError(
                f'Expected clusters or batches_per_label, got clusters={self.clusters!r}, '
                f'batches_per_label={self.batches_per_label!r}. How many batches a cluster fills is counted, '
                'with noise: leave batches_per_label out.'
            )
        elif not (self.resolved_clustering_rho > 0 and math.isfinite(self.resolved_clustering_rho)):
            raise ValueError(
                f'Expected clustering_rho > 0, got clustering_rho={self.clustering_rho}. '
                'Counts without noise cannot be released.'
            )
        elif self.resolved_embedder != 'tfidf' and self.centers is None:
            raise ValueError(
                f'Expected centers for embedder={self.embedder!r}, got centers=None. Fit some on a public '
                'corpus with `dp-corpus centers`; the package has centres for tfidf only.'
            )
        for name in (
            'batches_per_label',
            'clusters',
            'shards',
            'max_prompt_tokens',
            'max_record_bytes',
            'micro_batch_size',
        ):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f'Expected {name} >= 1, got {name}={value}. Give a positive whole number.')
        if self.run_id is not None and not _RUN_ID.fullmatch(self.run_id):
            raise ValueError(
                f'Expected a run id of letters, digits and "._-", got run_id={self.run_id!r}. '
                'It names folders and is published.'
            )
        if self.output and self.work_dir and _inside(self.work_dir, self.output):
            raise ValueError(
                f'Expected the work directory outside the output, got work_dir={self.work_dir!r}, '
                f'output={self.output!r}. The output is published; the work directory holds the key.'
            )
        self.params()  # validates the mechanism's settings

    def _check_ledger(self) -> None:
        if (self.dataset is None) != (self.ledger is None):
            raise ValueError(
                f'Expected dataset and ledger together or not at all, got dataset={self.dataset!r}, '
                f'ledger={"given" if self.ledger else None}. The ledger charges the run to the dataset.'
            )
        if self.ledger is None:
            return
        if _PASSWORD.search(self.ledger):
            # Neither a process list nor a config file is a place for one.
            raise ValueError(
                'Expected a ledger URL without a password, got one with it. Leave it out and give '
                'PGPASSWORD or PGPASSFILE in the environment.'
            )
        if self.aggregate == 'median':
            raise ValueError(
                f"Expected no dataset with aggregate='median', got dataset={self.dataset!r}. A median has no "
                'price that could be charged before it runs. Use another aggregate, or leave the ledger out '
                "and count the run against the records' budget yourself."
            )
        if self.centers_source == 'k-means':
            raise ValueError(
                f'Expected centres with a price with a dataset, got dataset={self.dataset!r}, '
                f'centers={self.centers!r} of plain k-means, which void every guarantee. Use public centres.'
            )

    @property
    def resolved_delta(self) -> float:
        """delta as given, or `records ** -1.1` of the declared number, rounded down to three digits."""
        if self.delta is not None:
            return self.delta
        assert self.records is not None  # __post_init__
        exact = self.records**-1.1
        unit = 10.0 ** (math.floor(math.log10(exact)) - 2)
        # Through text, so that the number that is printed is the number that is meant.
        return float(f'{math.floor(exact / unit) * unit:.2e}')

    @property
    def resolved_clip_bound(self) -> float:
        """c as given, or what the papers use for the aggregate."""
        return DEFAULT_CLIP_BOUNDS[self.aggregate] if self.clip_bound is None else self.clip_bound

    @property
    def resolved_clustering_rho(self) -> float:
        """rho of both noisy counts of a clustered run, as given or METHOD 3's default."""
        return DEFAULT_CLUSTERING_RHO if self.clustering_rho is None else self.clustering_rho

    @property
    def resolved_embedder(self) -> str:
        """The embedder as given, or the default that needs no weights."""
        return self.embedder or 'tfidf'

    @property
    def centers_path(self) -> pathlib.Path:
        """Where the public centres are."""
        return pathlib.Path(self.centers) if self.centers else BUNDLED / 'centers'

    @functools.cached_property
    def centers_source(self) -> str | None:
        """Source of the centres: 'public', or 'k-means' and 'dp-k-means' for comparisons; None without."""
        return None if self.clusters is None else self._centers_facts[0]

    @functools.cached_property
    def centers_rho(self) -> float:
        """rho that the centres themselves cost: 0 for public ones."""
        return 0.0 if self.clusters is None else self._centers_facts[1]

    @functools.cached_property
    def _centers_facts(self) -> tuple[str, float]:
        """Source and rho; reads the artefact's small file, and only one that was named."""
        if self.centers is None:
            return 'public', 0.0
        from models.clustering.centers import Centers

        centers = Centers.read(self.centers)
        return centers.source, centers.rho

    @property
    def noisy_count_rho(self) -> float:
        """rho that the run spends on noisy counts: 0 where the batches are given."""
        if self.clusters is not None:
            return self.resolved_clustering_rho
        return self.count_rho if self.batches_per_label is None else 0.0

    @property
    def label_values(self) -> tuple[str | None, ...]:
        """Declared labels as they stand in the records; a single None without labels."""
        return tuple(label.partition('=')[0] for label in self.labels) or (None,)

    @property
    def label_words(self) -> dict[str, str]:
        """What prompts call each declared label."""
        pairs = (label.partition('=') for label in self.labels)
        return {value: words or value for value, _, words in pairs}

    @property
    def architecture(self) -> Architecture:
        """The numbers of the model."""
        return ARCHITECTURES[self.model]

    @property
    def checkpoint_path(self) -> pathlib.Path:
        """Where the weights are."""
        return pathlib.Path(self.checkpoint) if self.checkpoint else BUNDLED / 'checkpoint'

    @property
    def tokenizer_path(self) -> pathlib.Path:
        """Where the SentencePiece file is."""
        return pathlib.Path(self.tokenizer) if self.tokenizer else BUNDLED / 'tokenizer.model'

    @property
    def resolved_work_dir(self) -> str:
        """The work directory as given, or `OUTPUT.curator`."""
        return self.work_dir or f'{str(self.output).rstrip("/")}.curator'

    @property
    def resolved_run_id(self) -> str:
        """The run id as given, or the output folder's name."""
        return self.run_id or re.sub(r'[^A-Za-z0-9._-]', '-', str(self.output).rstrip('/').split('/')[-1])

    @property
    def resolved_micro_batch_size(self) -> int:
        """Rows that go through the model together: equal parts, of at most 128, of a full batch.

        Public, so that the shape of a program never tells a batch's size. Hashed
        batches vary by about √s; a full one has s + 2√s contexts and the public prompt.
        """
        full = self.batch_size + 1 + 2 * math.isqrt(self.batch_size)
        return self.micro_batch_size or math.ceil(full / math.ceil(full / 128))

    def params(self) -> MechanismParams:
        """The mechanism, with r solved for where epsilon was given.

        Raises:
            ValueError: A setting out of range, or a budget that buys no private token.
        """
        settings: dict[str, Any] = {
            'batch_size': self.batch_size,
            'clip_bound': self.resolved_clip_bound,
            'temperature': self.temperature,
            'threshold': self.threshold,
            'threshold_noise_scale': self.threshold_noise_scale,
            'public_temperature': self.public_temperature,
            'public_top_k': self.public_top_k,
            'max_example_tokens': self.max_example_tokens,
            'unit': self.unit,
            'examples_per_context': self.examples_per_context,
            'aggregate': self.aggregate,
        }
        cap = self.max_private_tokens
        if cap is None:
            assert self.epsilon is not None  # __post_init__
            cap = accounting.solve_max_private_tokens(
                MechanismParams(**settings, max_private_tokens=1, max_batch_tokens=1),
                epsilon=self.epsilon,
                delta=self.resolved_delta,
                other_rho=self.noisy_count_rho + self.centers_rho,
            )
            if self.max_batch_tokens is not None:
                # No batch can have more: the rest is not paid for.
                cap = min(cap, self.max_batch_tokens)
        per_private_token = 1 if self.threshold is None else DEFAULT_BATCH_TOKENS_PER_PRIVATE_TOKEN
        return MechanismParams(
            **settings,
            max_private_tokens=cap,
            max_batch_tokens=self.max_batch_tokens or cap * per_private_token,
        )

    def to_toml(self) -> str:
        """The config as TOML that `read_config` reads back to an equal one."""
        lines: list[str] = []
        panel = None
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.metadata['panel'] != panel:
                panel = field.metadata['panel']
                lines.append(f'{"" if not lines else chr(10)}# {panel}')
            if value is None:
                lines.append(f'# {field.name} is not set')
            else:
                # JSON's strings, numbers, booleans and arrays of strings are TOML's too.
                plain = list(value) if isinstance(value, tuple) else value
                lines.append(f'{field.name} = {json.dumps(plain, ensure_ascii=False)}')
        return '\n'.join(lines) + '\n'


def path_settings() -> frozenset[str]:
    """Names of the settings whose value may be a path: who sets one chooses what file is read or written.

    Every setting that takes any text is one of them unless its metadata says that it names
    something else, so that a schedule's form leaves a new one to whoever deploys it.
    """
    hints = typing.get_type_hints(JobConfig)
    return frozenset(
        field.name
        for field in dataclasses.fields(JobConfig)
        if field.metadata['names_path'] and _takes_any_text(hints[field.name])
    )


def _takes_any_text(hint: Any) -> bool:
    if typing.get_origin(hint) is typing.Literal:
        return False
    return hint is str or any(_takes_any_text(option) for option in typing.get_args(hint))


def check_model(model: str, checkpoint: str | None, tokenizer: str | None) -> None:
    """Refuses an unknown model, and one whose files are not named.

    Raises:
        ValueError: See above.
    """
    if model not in ARCHITECTURES:
        near = difflib.get_close_matches(model, ARCHITECTURES, 1)
        hint = f' Did you mean {near[0]}?' if near else ''
        raise ValueError(f'Expected a model among {", ".join(ARCHITECTURES)}, got model={model!r}.{hint}')
    if model != 'bundled' and (checkpoint is None or tokenizer is None):
        raise ValueError(
            f'Expected a checkpoint and a tokenizer for model={model!r}, got '
            f'checkpoint={checkpoint!r}, tokenizer={tokenizer!r}. '
            'Give local paths with --checkpoint and --tokenizer, or use --model bundled.'
        )


def read_config(path: str | None, flags: Mapping[str, Any]) -> JobConfig:
    """Builds the config from a TOML file and flags; flags win.

    Args:
        path: The TOML file, or None.
        flags: Values by field name; None means that the flag was not given.

    Raises:
        ValueError: An unknown key, a value of another type, or settings that do not fit.
        FileNotFoundError: There is no such file.
    """
    entries: dict[str, Any] = {}
    if path is not None:
        file = pathlib.Path(path)
        if not file.is_file():
            raise FileNotFoundError(f'Expected a TOML file, got config={path!r}, which is not there.')
        try:
            entries = tomllib.loads(file.read_text(encoding='utf-8'))
        except tomllib.TOMLDecodeError as error:
            raise ValueError(f'Expected TOML in config={path!r}, got: {error}.') from error
    names = [field.name for field in dataclasses.fields(JobConfig)]
    for key in entries:
        if key not in names:
            near = difflib.get_close_matches(key, names, 1)
            hint = f'Did you mean {near[0]}?' if near else 'See dp-corpus generate --help for the keys.'
            raise ValueError(f'Expected only known keys in config={path!r}, got key={key!r}. {hint}')
    if isinstance(entries.get('labels'), list):
        entries['labels'] = tuple(entries['labels'])
    if flags.get('epsilon') is not None and flags.get('max_private_tokens') is None:
        entries.pop('max_private_tokens', None)  # a flag replaces its counterpart in the file
    if flags.get('max_private_tokens') is not None and flags.get('epsilon') is None:
        entries.pop('epsilon', None)
    entries |= {name: value for name, value in flags.items() if value is not None}
    return JobConfig(**entries)


def _check_types(config: JobConfig) -> None:
    """Checks each value against its annotation; whole numbers serve as floats."""
    hints = typing.get_type_hints(JobConfig)
    for field in dataclasses.fields(config):
        value, hint = getattr(config, field.name), hints[field.name]
        options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
        for option in options:
            if option is float and isinstance(value, int) and not isinstance(value, bool):
                object.__setattr__(config, field.name, float(value))
                break
            if _matches(value, option):
                break
        else:
            shown = ' or '.join(
                'nothing' if o is types.NoneType else getattr(o, '__name__', str(o)) for o in options
            )
            if typing.get_origin(options[0]) is typing.Literal:
                shown = ' or '.join(map(repr, typing.get_args(options[0])))
            raise ValueError(
                f'Expected {shown} for {field.name}, got {field.name}={value!r}. {field.metadata["help"]}'
            )


def _matches(value: Any, option: Any) -> bool:
    origin = typing.get_origin(option)
    if origin is typing.Literal:
        return value in typing.get_args(option)
    if origin is tuple:
        return isinstance(value, tuple) and all(isinstance(v, str) for v in value)
    return isinstance(value, option) and not (option is int and isinstance(value, bool))


def _inside(path: str, folder: str) -> bool:
    inner, outer = pathlib.PurePath(path.rstrip('/')), pathlib.PurePath(folder.rstrip('/'))
    return inner == outer or outer in inner.parents
