"""How long votes last with individual accounting: an estimate from public texts, before anything is paid.

Public texts stand in for the records of a batch, or of several where there are enough of them, which are
decoded as a run would, under a key that anyone may know. What each of them would be charged says how far
its budget reaches. The estimate costs nothing, for no record is read, and for the same reason it tells
nothing of the records.
"""

import dataclasses
import itertools
import math
import typing
from collections.abc import Callable, Sequence

import numpy as np

from models import reference as reference_lib
from models.privacy.randomness import KEY_BYTES, RunKey
from models.records import Batch, BatchId, Context
from pipeline.methods.predict import mechanism
from pipeline.methods.predict.mechanism import Config

if typing.TYPE_CHECKING:
    from models.assembly import GeneratorSettings
    from models.generate.batch import BatchGenerator

# Tokens of each stream that are decoded: more take longer, and the first ones show what a token costs.
MOST_TOKENS = 128
# Batches of public texts, each of which is one stream: tokens of one hang together.
MOST_STREAMS = 3
# B while the estimate decodes, in ρ: beyond what any tokens can cost, so that none is left unpriced.
_UNLIMITED = 1e9
# Where in a stream votes are looked at.
_QUARTERS = (0.25, 0.5, 0.75, 1.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class VotesAgainst:
    """How long votes last as differences from one kind of public row. All fields are public.

    Attributes:
        reference_texts: M; 0 for the public prompt alone.
        mean_price: ρ of one token and context, at tokens on which every context votes.
        standard_error: Of `mean_price`, by how much tokens differ, and of several streams by how much
            these differ, whichever is more; None of a single token.
        voting: Share of the contexts whose budget reaches a quarter, a half, three quarters and the
            end of a batch of the run. Beyond its reach a context still votes where that costs
            little.
        first_silent: Place in the stream of the first token that the dearest context cannot pay; None
            where all pay to the end.
        budget_left: Share of B that a context has left at the end, in the mean.
    """

    reference_texts: int
    mean_price: float
    standard_error: float | None
    voting: tuple[float, ...]
    first_silent: int | None
    budget_left: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class VoteEstimate:
    """How long votes of public texts would last. All fields are public.

    Every context is taken to pay for each token of the batch the mean of what it would pay for each
    that was decoded.

    Attributes:
        label: Of the batch, the first declared one; None without labels.
        streams: Batches of public texts that were decoded, other texts in each; of one alone, how much
            batches differ is not known.
        contexts: Contexts of public texts in each, at most the batch size.
        tokens: Tokens of each that were decoded, all contexts voting on each.
        against: With the run's reference, where it has one, and last with the public prompt alone.
    """

    label: str | None
    streams: int
    contexts: int
    tokens: int
    against: tuple[VotesAgainst, ...]

    @property
    def is_clear(self) -> bool:
        """Whether prices with and without the reference differ by more than two standard errors."""
        first, last = self.against[0], self.against[-1]
        if first.standard_error is None or last.standard_error is None:
            return False
        error = math.hypot(first.standard_error, last.standard_error)
        return abs(first.mean_price - last.mean_price) > 2 * error


def check(config: Config, label_field: str | None = None) -> None:
    """Whether there is anything to estimate; imports nothing heavy.

    Raises:
        ValueError: Every context is charged the same, or a column of labels without declared labels.
    """
    own = config.method
    if not own.is_individual:
        raise ValueError(
            f'Expected individual accounting with calibration, got aggregate={own.aggregate!r}, '
            f'accounting={own.accounting!r}, threshold={own.threshold!r}. Otherwise all contexts are '
            'charged the same for every token: leave --calibration out, or give --accounting individual '
            '--aggregate difference without --threshold.'
        )
    if label_field is not None and not config.input.labels:
        raise ValueError(
            f'Expected labels with calibration_label_field, got calibration_label_field={label_field!r}, '
            'labels=[]. Declare --labels, or leave --calibration-label-field out: all texts then serve.'
        )


def estimate_votes(
    config: Config,
    calibration: str,
    *,
    label_field: str | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> VoteEstimate:
    """Decodes batches of public texts, with the run's reference and with the public prompt alone.

    As many whole batches as there are texts for, at most `MOST_STREAMS`, or a single one of fewer contexts.
    They are of the first declared label, their texts picked by a public hash among those that are no
    reference, and their key is all zeros: the same files give the same estimate.

    Args:
        config: The run's settings. Of each batch `MOST_TOKENS` tokens are decoded.
        calibration: Files of public texts, as --reference names its own.
        label_field: Column of their label, where texts of other labels are to be left out.
        progress: Told what goes on.

    Raises:
        ValueError: As `check`; texts for fewer than two contexts; a file that is one of the input,
            lacks a column or is damaged; a prompt that does not fit.
        FileNotFoundError: No such file.
    """
    check(config, label_field)
    from pipeline.methods.predict.worker_settings import generator_settings

    progress('Reading public texts')
    settings = generator_settings(config)
    label = config.input.label_values[0]
    settings.check_prompts((label,))
    batches = _batches(config, settings, calibration, label_field)
    reference = () if settings.reference is None else settings.reference.of_label(label)
    progress('Loading the model')
    generator = _generator(settings, batches, reference)
    against = []
    for texts in dict.fromkeys((reference, ())):
        rows = f'{len(texts)} reference texts' if texts else 'the public prompt'
        of_batches = '' if len(batches) == 1 else f' of each of {len(batches)} batches'
        progress(f'Decoding {generator.params.max_batch_tokens} tokens{of_batches} against {rows}')
        against.append(_votes_against(generator, batches, texts, config))
    return VoteEstimate(
        label=label,
        streams=len(batches),
        contexts=len(batches[0].contexts),
        tokens=generator.params.max_batch_tokens,
        against=tuple(against),
    )


def _batches(
    config: Config, settings: 'GeneratorSettings', calibration: str, label_field: str | None
) -> list[Batch]:
    """Whole batches of public texts, none of which is a reference text; or one with fewer contexts than s."""
    from pipeline.methods import beside_input, workers
    from pipeline.methods.predict import public_texts
    from transforms.read import check_input

    label, size = config.input.label_values[0], config.budget.examples_per_context
    files = public_texts.list_texts(calibration, 'calibration')
    beside_input.refuse_input(config.input, files, 'calibration')
    rules = public_texts.text_rules(config, label_field)
    check_input(calibration, rules.fields)
    taken = frozenset() if settings.reference is None else settings.reference.shared_hashes
    texts = reference_lib.pick(
        (
            text
            for own, text in public_texts.text_rows([file.path for file in files], rules, 'calibration')
            if (label_field is None or own == label) and reference_lib.text_hash(text) not in taken
        ),
        MOST_STREAMS * config.method.batch_size * size,
    )
    if len(texts) < 2 * size:
        of_label = '' if label_field is None else f' of label {label!r}'
        raise ValueError(
            f'Expected {2 * size} or more different texts{of_label} that are no reference texts, for two '
            f'contexts, got texts={len(texts)} in calibration={calibration!r}. Add public texts'
            f'{", or leave out --calibration-label-field" if label_field else ""}.'
        )
    limit = workers.text_limit(config.method)
    contexts = tuple(
        Context(context_hash=reference_lib.text_hash(own[0])[:16], texts=tuple(text[:limit] for text in own))
        # A last context of fewer texts would not be like the others.
        for own in itertools.islice(itertools.batched(texts, size), len(texts) // size)
    )
    batches = [
        Batch(batch_id=BatchId(group=0, index=index), label=label, contexts=own)
        for index, own in enumerate(itertools.batched(contexts, config.method.batch_size))
    ]
    return [batch for batch in batches if len(batch.contexts) == config.method.batch_size] or batches


def _generator(
    settings: 'GeneratorSettings', batches: Sequence[Batch], reference: Sequence[str]
) -> 'BatchGenerator':
    """The run's generator for the first tokens of these batches, which no context is too poor to vote on."""
    from transforms.predict import load_generator

    params = settings.params
    writer = settings.writer()
    others = [Context(context_hash=b'', texts=(text,)) for text in reference]
    label, contexts = batches[0].label, [context for batch in batches for context in batch.contexts]
    prompts = writer.private_prompts(label, [*contexts, *others])
    # Public texts, so that their longest prompt tells nothing, and a short one is fast.
    longest = max(len(prompt) for prompt in (writer.public_prompt(label), *prompts))
    of_run = dataclasses.replace(
        settings,
        run_id='calibration',
        max_prompt_tokens=longest,
        params=dataclasses.replace(
            params,
            max_batch_tokens=min(params.max_batch_tokens, MOST_TOKENS),
            context_budget=_UNLIMITED,
        ),
    )
    return load_generator(of_run)


def _votes_against(
    generator: 'BatchGenerator', batches: Sequence[Batch], reference: tuple[str, ...], config: Config
) -> VotesAgainst:
    charged = []
    for batch in batches:
        draws = generator.draws(batch, RunKey(bytes(KEY_BYTES)))
        stream = generator.decode(batch, draws, reference=reference)
        spending = stream.spending
        # Forced tokens are free, and lower the mean.
        assert spending is not None and spending.voted[stream.is_chosen].all()
        charged.append(spending.charged)
    params = mechanism.params(config)
    assert params.context_budget is not None
    return lasting(charged, params.context_budget, params.max_batch_tokens, reference_texts=len(reference))


def lasting(
    charged: Sequence[np.ndarray], budget: float, tokens: int, *, reference_texts: int = 0
) -> VotesAgainst:
    """How long votes last that cost each context at every token what these did in the mean.

    Args:
        charged: Of each stream `[n, contexts]`, ρ, of tokens on which every context voted; 0 of forced
            ones.
        budget: B, in ρ.
        tokens: Of a batch of the run.
        reference_texts: M, or 0 for the public prompt.
    """
    streams = [each.astype(np.float64) for each in charged]
    prices = np.concatenate([each.mean(axis=0) for each in streams])
    of_tokens = np.concatenate([each.mean(axis=1) for each in streams])
    errors = [
        float(of.std(ddof=1) / math.sqrt(len(of)))
        for of in (of_tokens, np.array([each.mean() for each in streams]))
        if len(of) > 1
    ]
    reach = np.full(len(prices), tokens)
    poor = prices * tokens > budget
    reach[poor] = np.floor(budget / prices[poor])
    return VotesAgainst(
        reference_texts=reference_texts,
        mean_price=float(prices.mean()),
        standard_error=max(errors, default=None),
        voting=tuple(float((reach >= math.ceil(quarter * tokens)).mean()) for quarter in _QUARTERS),
        first_silent=int(reach.min()) if poor.any() else None,
        budget_left=float((1 - reach * prices / budget).mean()),
    )
