"""Cost of a token of the difference aggregate at equal distance from what the private prompts say.

    python -m tests.benchmarks.reference_benchmark collect agnews --work DIR
    python -m tests.benchmarks.reference_benchmark table agnews --work DIR

`collect` walks along one stream of tokens with the real prompts of a run: 64 private ones of one label and up
to 16 public ones of each kind of reference. It saves the logits of every step on the tokens that any
of the references allows. `table` replays the mechanism on them in NumPy float64 at many settings and prints
JSON lines: for each reference and accounting the mean price of one token, in units of ½/(sτ)², that brings
the total variation to the unclipped average of the private prompts (softmax of the mean of their
log-probabilities, over τ, on the allowed tokens) down to some distances. Prices lie between
settings of c and c₂ by interpolation of logarithms; null is a distance that none of them came to, or
that all came nearer than.

References: `public` is the public prompt alone; `sampled` are texts that the public prompt wrote, without a
record; `released` are texts that a batch of other records of the label released at ε = 3; `genre` are other
records of the same data under other labels, `label` of the same label, `other` texts of another genre.

Settings are chosen on the stand-ins (dbpedia, wikimovies, banking77), never on the records of
`utility_benchmark`, which the table is read for afterwards.
"""

import argparse
import csv
import dataclasses
import gzip
import itertools
import json
import math
import pathlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from models.generate.batch import BatchGenerator
from models.privacy import randomness
from models.privacy.individual import LEVELS
from models.records import Batch, BatchId, Context
from pipeline import methods
from pipeline.asked.config import job_config
from pipeline.methods.predict import graph
from pipeline.settings.job_config import JobConfig
from tests.benchmarks import real_records
from tests.benchmarks.real_records import DATA, Dataset, Record

MODEL = 'gemma3-270m'
CONTEXTS, REFERENCE, TOP_K = 64, 16, 1024
MAX_EXAMPLE_TOKENS, WALK_TEMPERATURE = 64, 0.8


def _dbpedia() -> list[Record]:
    rows: dict[str, str] = {}
    for path in sorted((DATA / 'dbpedia' / 'rlprompt_16shot').glob('*.tsv')):
        with open(path, newline='', encoding='utf-8') as file:
            rows |= {row['sentence'].strip(): row['label'] for row in csv.DictReader(file, delimiter='\t')}
    return [(label, text) for text, label in rows.items()]


def _wikimovies() -> list[Record]:
    rows: list[Record] = []
    for decade in ('1980s', '1990s', '2000s', '2010s'):
        with gzip.open(DATA / 'wikimovies' / f'movies-{decade}.json.gz', 'rt', encoding='utf-8') as file:
            rows += [(film['genres'][0], film['extract']) for film in json.load(file)
                     if film.get('extract') and film['genres']]  # fmt: skip
    return rows


def _banking77() -> list[Record]:
    with open(DATA / 'banking77' / 'train.csv', newline='', encoding='utf-8') as file:
        return [(row['category'], row['text']) for row in csv.DictReader(file)]


def _stand_in(
    labels: dict[str, str], description: str, label_name: str, text_name: str, tokens: int,
    read: Callable[[], list[Record]],
) -> Dataset:  # fmt: skip
    return Dataset(
        labels=labels,
        description=description,
        label_name=label_name,
        text_name=text_name,
        max_prompt_tokens=tokens,
        train=read,
        held_out=read,
    )


STAND_INS = {
    'dbpedia': _stand_in(
        {'0': 'Company', '4': 'Politician', '9': 'Village', '13': 'Book'},
        'Short entries of an encyclopedia, one after another.', 'Subject', 'Entry', 112, _dbpedia,
    ),
    'wikimovies': _stand_in(
        {'Comedy': 'Comedy', 'Horror': 'Horror', 'Drama': 'Drama', 'Action': 'Action'},
        'Short descriptions of films, one after another.', 'Genre', 'Film', 112, _wikimovies,
    ),
    'banking77': _stand_in(
        {'transfer_not_received_by_recipient': 'A transfer that has not come', 'top_up_failed':
         'A failed top-up', 'exchange_rate': 'Exchange rate', 'card_payment_fee_charged': 'Card fee'},
        "Customers' questions to a bank, one after another.", 'About', 'Question', 72, _banking77,
    ),
}  # fmt: skip
DATASETS = real_records.DATASETS | STAND_INS
COUNTS = (1, 4, 8, REFERENCE)  # M whose allowed tokens are saved
CLIP_BOUNDS = tuple(float(c) for c in np.geomspace(0.18, 8, 12).round(2))
SHIFT_BOUNDS = (0.01, 0.2, 0.4, 0.8, 1.2, 1.6)
DISTANCES = (0.1, 0.08, 0.06, 0.04, 0.03, 0.02, 0.0125)
# The label that is walked for each, and its texts of another genre.
LABEL_OF = {
    'agnews': '3', 'trec': 'HUM', 'mts_dialog': 'GENHX', 'dbpedia': '0', 'wikimovies': 'Horror',
    'imdb': 'pos', 'banking77': 'transfer_not_received_by_recipient',
}  # fmt: skip


def _config(data: Dataset) -> JobConfig:
    """Settings of a run; what it releases is the reference `released`."""
    return job_config(
        input='records',
        output='corpus',
        text_field='text',
        label_field='label',
        labels=tuple(f'{value}={words}' for value, words in data.labels.items()),
        corpus_description=data.description,
        label_name=data.label_name,
        text_name=data.text_name,
        max_prompt_tokens=data.max_prompt_tokens,
        records=20_000,
        model=MODEL,
        batch_size=CONTEXTS,
        aggregate='difference',
        epsilon=3.0,
        delta=1e-5,
        reference_rounds=1,
        temperature=WALK_TEMPERATURE,
        public_top_k=TOP_K,
        max_example_tokens=MAX_EXAMPLE_TOKENS,
        max_batch_tokens=256,
    )


def contexts_of(texts: Sequence[str]) -> list[Context]:
    """One context for each text."""
    return [Context(context_hash=n.to_bytes(4, 'big'), texts=(text,)) for n, text in enumerate(texts)]


def _written(generator: BatchGenerator, label: str, texts: Sequence[str], name: str) -> list[str]:
    """Complete examples of a batch of these texts: the longer ones of those that it wrote."""
    batch = Batch(batch_id=BatchId(group=0, index=0), label=label, contexts=tuple(contexts_of(texts)))
    generator = dataclasses.replace(generator, run_id=name)
    examples = generator.generate(batch, randomness.RunKey(bytes(32))).examples
    complete = [example.text for example in examples if not example.truncated and example.text]
    return sorted(complete, key=lambda text: (-len(text), text))


@dataclasses.dataclass(frozen=True)
class Walk:
    """Logits along one stream of tokens, on the U tokens that some reference allows.

    Attributes:
        private: `[steps, contexts, U]` float32; −∞ past a step's own tokens.
        public: By reference, `[steps, M, U]` float32; −∞ past a step's own tokens.
        outside: `[steps]` float64, log Σ exp of the mean of the private logits over the tokens that text
            may contain and that are not among the U.
    """

    private: np.ndarray
    public: Mapping[str, np.ndarray]
    outside: np.ndarray

    def save(self, path: pathlib.Path) -> None:
        """One file of NumPy's."""
        np.savez(path, private=self.private, outside=self.outside,
                 **{f'public_{kind}': rows for kind, rows in self.public.items()})  # type: ignore[arg-type]  # fmt: skip

    @classmethod
    def load(cls, path: pathlib.Path) -> 'Walk':
        """The walk that `save` wrote."""
        with np.load(path) as arrays:
            public = {
                name.removeprefix('public_'): arrays[name]
                for name in arrays.files
                if name.startswith('public_')
            }
            return cls(arrays['private'], public, arrays['outside'])


def _drawn(
    records: Sequence[Record], keep: Callable[[str], bool], count: int, rng: np.random.Generator
) -> list[str]:
    """So many texts of labels to keep, or all of them where there are fewer."""
    texts = sorted({text for label, text in records if keep(label)})
    return [texts[index] for index in rng.permutation(len(texts))[:count]]


def _prompts(
    name: str, generator: BatchGenerator, rng: np.random.Generator
) -> tuple[dict[str, list[np.ndarray]], list[np.ndarray], dict[str, list[str]]]:
    """Public prompts by reference, private prompts, and the reference texts."""
    data, label, writer = DATASETS[name], LABEL_OF[name], generator.writer
    records = data.train()
    own = _drawn(records, lambda found: found == label, 2 * CONTEXTS + REFERENCE, rng)
    private, first_round, same = own[:CONTEXTS], own[CONTEXTS:-REFERENCE], own[-REFERENCE:]
    other = DATASETS['banking77' if name == 'dbpedia' else 'dbpedia'].train()
    texts = {
        'sampled': _written(generator, label, [], 'sampled'),
        'released': _written(generator, label, first_round, 'released'),
        'genre': _drawn(records, lambda found: found != label, REFERENCE, rng),
        'label': same,
        'other': _drawn(other, lambda _: True, REFERENCE, rng),
    }
    public = {'public': [writer.public_prompt(label)]}
    for kind, found in texts.items():
        if found:  # a batch may release no complete text
            public[kind] = writer.private_prompts(label, contexts_of(found[:REFERENCE]))
    return public, writer.private_prompts(label, contexts_of(private)), texts


def collect(name: str, steps: int, seed: int) -> tuple[Walk, dict[str, Any]]:
    """Walks along tokens that are sampled from the unclipped average of a label's private prompts.

    Returns:
        The walk, and what was read and written on it.
    """
    rng = np.random.default_rng(seed)
    generator = graph.generator_settings(methods.solve(_config(DATASETS[name]), launch=True)).build()
    decoder, writer = generator.decoder, generator.writer
    public, private, texts = _prompts(name, generator, rng)
    ends = list(itertools.accumulate(map(len, public.values())))
    parts = {
        kind: slice(end - len(rows), end) for (kind, rows), end in zip(public.items(), ends, strict=True)
    }
    prompts = [*itertools.chain(*public.values()), *private]
    rows = decoder.shapes.micro_batches(len(prompts)) * decoder.shapes.micro_batch_size
    states, cache = decoder.prefill([*prompts, *[np.array([1], np.int32)] * (rows - len(prompts))])
    first = states
    step, output = jax.jit(decoder.step, donate_argnums=1), jax.jit(decoder.logits)
    released = writer.released_tokens(decoder.vocab_size)
    stop_rule = generator.stop_rule
    seen: list[np.ndarray] = []
    outside, path, offset, state = [], [], 0, 0
    for _ in range(steps):
        logits = np.concatenate([np.asarray(output(decoder.weights, part)) for part in states])
        logits = logits[: len(prompts)]
        logits[:, ~released] = -np.inf
        inside = np.zeros(decoder.vocab_size, bool)
        for part in parts.values():
            for count in COUNTS:
                inside[_best(logits[part][:count].mean(axis=0))] = True
        average = logits[ends[-1] :].astype(np.float64).mean(axis=0)
        outside.append(np.logaddexp.reduce(average[released & ~inside]))
        seen.append(logits[:, inside])
        best = _best(average)
        odds = _softmax(average[best] / WALK_TEMPERATURE)
        path.append(int(rng.choice(best, p=odds)))
        state = int(stop_rule.table[state, path[-1]])
        if state == stop_rule.ended or offset + 1 >= MAX_EXAMPLE_TOKENS:
            states, offset, state = first, 0, 0
        else:
            states, cache = step(decoder.weights, cache, jnp.int32(path[-1]), jnp.int32(offset))
            offset += 1
    width = max(logits.shape[1] for logits in seen)
    wide = np.stack([
        np.pad(logits, ((0, 0), (0, width - logits.shape[1])), constant_values=-np.inf) for logits in seen
    ])  # fmt: skip
    by_kind = {kind: wide[:, part] for kind, part in parts.items()}
    return Walk(wide[:, ends[-1] :], by_kind, np.array(outside)), {
        'texts': texts,
        'path': writer.texts([path]),
    }


def _best(logits: np.ndarray) -> np.ndarray:
    """Indices of the K highest, in any order."""
    return np.argpartition(-logits, TOP_K)[:TOP_K]


def _softmax(z: np.ndarray) -> np.ndarray:
    odds = np.exp(z - z.max())
    return np.asarray(odds / odds.sum())


def _log_softmax(z: np.ndarray) -> np.ndarray:
    return np.asarray(z - np.logaddexp.reduce(z, axis=-1, keepdims=True))


@dataclasses.dataclass(frozen=True)
class Step:
    """One step of a walk on the K tokens that a reference allows, float64.

    Attributes:
        reference: `[K]` log-probabilities.
        differences: `[contexts, K]`, log-probabilities of the contexts less those of the reference.
        temperature: τ.
    """

    reference: np.ndarray
    differences: np.ndarray
    temperature: float

    def distance(self, scores: np.ndarray) -> float:
        """Total variation between softmax(scores), `[K]`, and the unclipped average."""
        average = (self.reference + self.differences.mean(axis=0)) / self.temperature
        return float(np.abs(_softmax(scores) - _softmax(average)).sum() / 2)


def steps_of(walk: Walk, kind: str, texts: int, temperature: float, top_k: int = TOP_K) -> Iterator[Step]:
    """The steps of a walk with one kind of reference.

    Args:
        walk: The walk of `collect`.
        kind: Kind of reference.
        texts: M, how many of its prompts are taken.
        temperature: τ.
        top_k: K, at most that of the walk.
    """
    for public, private in zip(walk.public[kind], walk.private, strict=True):
        mean = public[:texts].astype(np.float64).mean(axis=0)
        best = np.argpartition(-mean, top_k)[:top_k]
        reference = _log_softmax(mean[best])
        yield Step(reference, _log_softmax(private[:, best].astype(np.float64)) - reference, temperature)


# A step's outcome at some settings: its distance, and every context's price.
Outcome = tuple[float, np.ndarray]


def worst_case(step: Step, clip_bound: float) -> Outcome:
    """METHOD 4b: every context pays c²."""
    votes = np.clip(step.differences, -clip_bound, clip_bound)
    scores = (step.reference + votes.mean(axis=0)) / step.temperature
    return step.distance(scores), np.full(len(votes), clip_bound**2)


def mean(step: Step, clip_bound: float) -> Outcome:
    """PP equation 1: the mean of clipped logits, with the reference's tokens alone."""
    logits = step.reference + step.differences
    votes = np.maximum(logits - logits.max(axis=1, keepdims=True) + clip_bound, -clip_bound)
    return step.distance(votes.mean(axis=0) / step.temperature), np.full(len(votes), clip_bound**2)


def individual(step: Step, clip_bound: float, shift_bounds: Sequence[float], omega: float) -> list[Outcome]:
    """Individual accounting, for one c and several c₂: votes centred under p^{1/τ}, and the convex link.

    Twice the price of a context is the least, over levels λ, of λ + e^b Σ π (u² − λ)⁺ exp(κ₁h + κ₂h²), b =
    c₂/τ, in units of 1/(sτ)² (models/privacy/README.md).
    """
    batch, temperature = CONTEXTS, step.temperature
    base = _softmax(step.reference / temperature)
    votes = np.clip(step.differences, -clip_bound, clip_bound)
    votes -= (votes @ base)[:, None]
    sizes, shift = np.abs(votes) / (batch * temperature), votes.mean(axis=0) / temperature
    found = []
    for shift_bound in shift_bounds:
        bound = shift_bound / temperature
        flat = bound + 2 * np.log1p(np.maximum(shift - bound, 0) / 2)
        scores = step.reference / temperature + np.where(shift <= bound, shift, flat)
        sigma = np.sqrt(math.exp(bound) * (sizes**2 * np.exp(sizes)) @ base)
        reach = sizes + sigma[:, None]
        factor = np.exp(((omega + 1) / 3 + 1 / 12) * reach + omega**2 / 8 * reach**2)
        squares, likeliest = votes**2, int(base.argmax())
        levels = [*(share * squares.max(axis=1) for share in LEVELS), squares[:, likeliest]]
        bounds = [
            level + math.exp(bound) * (np.maximum(squares - level[:, None], 0) * factor) @ base
            for level in levels
        ]
        found.append((step.distance(scores), np.min(bounds, axis=0)))
    return found


@dataclasses.dataclass(frozen=True)
class Setting:
    """One setting of the mechanism on a walk: means over its steps.

    Attributes:
        clip_bound: c.
        shift_bound: c₂; None with worst-case accounting.
        distance: Total variation to the unclipped average.
        price: Mean over contexts and steps, in units of ½/(sτ)².
        upper_decile: A tenth of the prices lies above.
        largest: The highest price.
    """

    clip_bound: float
    shift_bound: float | None
    distance: float
    price: float
    upper_decile: float
    largest: float

    @classmethod
    def of(cls, clip_bound: float, shift_bound: float | None, outcomes: Sequence[Outcome]) -> 'Setting':
        """From the outcomes of all steps."""
        prices = np.concatenate([price for _, price in outcomes])
        return cls(
            clip_bound=clip_bound,
            shift_bound=shift_bound,
            distance=float(np.mean([distance for distance, _ in outcomes])),
            price=float(prices.mean()),
            upper_decile=float(np.quantile(prices, 0.9)),
            largest=float(prices.max()),
        )


def settings_of(steps: Sequence[Step], accounting: str, omega: float) -> list[Setting]:
    """The walk at every setting of the table."""
    if accounting == 'worst-case':
        return [Setting.of(c, None, [worst_case(step, c) for step in steps]) for c in CLIP_BOUNDS]
    found = []
    for c in CLIP_BOUNDS:
        by_step = [individual(step, c, SHIFT_BOUNDS, omega) for step in steps]
        for number, shift_bound in enumerate(SHIFT_BOUNDS):
            found.append(Setting.of(c, shift_bound, [outcomes[number] for outcomes in by_step]))
    return found


def price_at(settings: Sequence[Setting], distance: float) -> float | None:
    """The lowest price that comes to a distance, between settings; None outside of theirs."""
    frontier: list[Setting] = []
    for setting in sorted(settings, key=lambda found: (found.price, found.distance)):
        if not frontier or setting.distance < frontier[-1].distance:
            frontier.append(setting)
    if not frontier[-1].distance <= distance <= frontier[0].distance:
        return None
    near = [math.log(setting.distance) for setting in reversed(frontier)]
    price = [math.log(setting.price) for setting in reversed(frontier)]
    return math.exp(float(np.interp(math.log(distance), near, price)))


def table(
    walk: Walk, *, texts: int, temperature: float, omegas: Sequence[float]
) -> Iterator[dict[str, object]]:
    """A line for each reference and accounting; the first is the worst case with the public prompt alone."""
    baseline: dict[float, float | None] = {}
    for kind, rows in walk.public.items():
        steps = list(steps_of(walk, kind, texts, temperature))
        silent = [step.distance(step.reference / temperature) for step in steps]
        for accounting, omega in (('worst-case', 0.0), *(('individual', omega) for omega in omegas)):
            settings = settings_of(steps, accounting, omega)
            prices = {distance: price_at(settings, distance) for distance in DISTANCES}
            baseline = baseline or prices
            best = {
                distance: min(
                    (setting for setting in settings if setting.distance <= distance),
                    key=lambda setting: setting.price,
                    default=None,
                )
                for distance in DISTANCES
            }
            yield {
                'reference': kind,
                'texts': min(texts, rows.shape[1]),
                'accounting': accounting,
                'omega': omega or None,
                'temperature': temperature,
                'steps': len(steps),
                'distance_without_votes': round(float(np.mean(silent)), 4),
                'price_at': {
                    str(distance): price and round(price, 4) for distance, price in prices.items()
                },
                'times_cheaper': {
                    str(distance): round(first / price, 2)
                    for distance, price in prices.items()
                    if price and (first := baseline[distance])
                },
                'settings': {
                    str(distance): {name: round(value, 4) for name, value in dataclasses.asdict(found).items()
                                    if value is not None}
                    for distance, found in best.items() if found
                },
            }  # fmt: skip


def main() -> None:
    """Collects a walk, or prints the table of one."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('command', choices=['collect', 'table'])
    parser.add_argument('data', choices=list(DATASETS))
    parser.add_argument('--work', type=pathlib.Path, required=True, help='folder of the walks')
    parser.add_argument('--steps', type=int, default=60, help='of `collect`')
    parser.add_argument('--seed', type=int, default=0, help='of `collect`')
    parser.add_argument('--reference-size', type=int, default=8, help='M, at most 16')
    parser.add_argument('--temperature', type=float, default=WALK_TEMPERATURE)
    parser.add_argument('--omega', type=float, nargs='+', default=[8.0, 24.0])
    args = parser.parse_args()
    if not DATA.exists():
        print(f'SKIPPED, nothing is measured: no records at {DATA}.', file=sys.stderr)
        return
    path = args.work / f'{args.data}.npz'
    if args.command == 'collect':
        args.work.mkdir(parents=True, exist_ok=True)
        walk, said = collect(args.data, args.steps, args.seed)
        walk.save(path)
        path.with_suffix('.json').write_text(json.dumps(said, indent=1, ensure_ascii=False), encoding='utf-8')
        return
    for line in table(
        Walk.load(path), texts=args.reference_size, temperature=args.temperature, omegas=args.omega
    ):
        print(json.dumps({'data': args.data, **line}, ensure_ascii=False), flush=True)


if __name__ == '__main__':
    main()
