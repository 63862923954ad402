"""A run's generator: batches of contexts become synthetic examples, with what they cost.

`BatchGenerator` holds the model, the prompts and the mechanism; `loop.decode_stream` decodes, and
`examples.split_examples` cuts the stream.
"""

import collections
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from models import activity, records
from models.constraints import Constraint, Grammar
from models.decoders import decoder as decoder_lib
from models.generate import loop, rows
from models.generate.examples import ExampleTokens, places_in_examples, split_examples
from models.generate.rows import PublicRows
from models.generate.stream import TokenStream
from models.privacy import candidates, ex_post, individual, randomness, sampling
from models.privacy.params import MechanismParams
from models.prompts import PromptWriter
from models.stop_rule import StopRule

# Public rows that a worker keeps, because it alternates between labels.
_KEPT_REFERENCES = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class GeneratedBatch:
    """The result of one batch: what may be released, and what may not.

    Attributes:
        loss: The batch's losses, restricted to the curator; None where the aggregate has
            a price in advance.
        spending: The contexts' spending, restricted to the curator; None without individual
            accounting.
    """

    examples: list[records.SyntheticExample]
    loss: ex_post.BatchLoss | None = dataclasses.field(default=None, repr=False)
    spending: individual.BatchSpending | None = dataclasses.field(default=None, repr=False)


@dataclasses.dataclass(frozen=True)
class BatchGenerator:
    """Turns batches of one run into synthetic examples.

    Holds no private text: contexts pass through `generate` and leave nothing behind.
    """

    decoder: decoder_lib.Decoder
    writer: PromptWriter
    params: MechanismParams
    run_id: str

    @functools.cached_property
    def stop_rule(self) -> StopRule:
        """The end of an example."""
        return self.writer.stop_rule(self.decoder.vocab_size)

    def draws(self, batch: records.Batch, key: randomness.RunKey) -> randomness.BatchDraws:
        """The randomness of a batch: a function of its name, the key and the run id alone."""
        return randomness.batch_draws(
            key,
            self.run_id,
            str(batch.batch_id),
            max_private_tokens=self.params.private_token_cap,
            max_batch_tokens=self.params.max_batch_tokens,
            threshold_noise_scale=self.params.threshold_noise_scale,
            batch_size=self.params.batch_size,
            levels=sampling.tree_levels(candidates.count(self.params.public_top_k, self.decoder.vocab_size)),
        )

    def constraint(self, cells: Sequence[int] | None = None) -> Constraint:
        """The run's constraint: what text may contain, what its structure allows, and the stop tokens.

        Args:
            cells: The structure's cell for each example of a stream; None where there is only one.
        """
        constraint = self._constraint
        if cells is None:
            return constraint
        assert isinstance(constraint, Grammar), 'only a structure has cells'
        return constraint.of_cells(cells)

    def cells(self, batch: records.Batch) -> list[int] | None:
        """The structure's cell for every example that a batch may have; None without cells."""
        if batch.turns is None:
            return None
        return batch.turns.cells(self.run_id, self.params.max_batch_tokens)

    @functools.cached_property
    def _numbers(self) -> Iterator[int]:
        """Numbers of the batches that are begun here, from 0."""
        return itertools.count()

    @functools.cached_property
    def _constraint(self) -> Constraint:
        return self.writer.constraint(self.decoder.vocab_size)

    @functools.cached_property
    def _public_rows(self) -> collections.OrderedDict[Any, PublicRows]:
        """Those that were used last, by label and reference; the latest comes last."""
        return collections.OrderedDict()

    def public_rows(self, label: str | None, reference: Sequence[str] = ()) -> PublicRows | None:
        """The public rows of a label's batches; they go through the model once for many batches.

        Args:
            label: The batches' label.
            reference: Public texts; each gets a private prompt of its own (METHOD 4c). Without
                them the public prompt is the only row.

        Returns:
            None where no public logits are read.
        """
        if not self.params.needs_public_logits:
            return None
        name, known = (label, tuple(reference)), self._public_rows
        public_rows = known.pop(name, None)
        if public_rows is None:
            contexts = [records.Context(context_hash=b'', texts=(text,)) for text in reference]
            prompts = self.writer.private_prompts(label, contexts) or [self.writer.public_prompt(label)]
            public_rows = rows.prefill_public(self.decoder, prompts)
        known[name] = public_rows
        while len(known) > _KEPT_REFERENCES:
            known.popitem(last=False)
        return public_rows

    def decode(
        self,
        batch: records.Batch,
        draws: randomness.BatchDraws,
        reference: Sequence[str] = (),
    ) -> TokenStream:
        """The token stream of a batch; progress goes to `models/activity.py`."""
        batch_id, is_first, programs = str(batch.batch_id), next(self._numbers) == 0, itertools.count(1)
        # The loop's, that of prompts, and where there are public ones theirs.
        of_run = 2 + self.params.needs_public_logits

        def watch(doing: str, tokens: int) -> None:
            # A later batch may have other programs, by its size, which is private: nothing says so.
            if is_first and not tokens:
                doing = f'Compiling ({next(programs)} of {of_run})'
            most = self.params.max_batch_tokens if tokens else 0
            activity.report(activity.Activity(doing, batch_id, tokens, most))

        if self.params.needs_public_logits:
            watch('Reading public prompts', 0)
        return loop.decode_stream(
            self.decoder,
            self.public_rows(batch.label, reference),
            self.writer.private_prompts(batch.label, batch.contexts),
            params=self.params,
            draws=draws,
            constraint=self.constraint(self.cells(batch)),
            stop_rule=self.stop_rule,
            watch=watch,
        )

    def _texts(self, examples: Sequence[ExampleTokens], cells: Sequence[int] | None) -> list[str]:
        texts = self.writer.texts([example.tokens for example in examples])
        structure = self.writer.structure
        if structure is not None and structure.closes_truncated:
            cut = [index for index, example in enumerate(examples) if example.truncated]
            closed = self.writer.closed_texts(
                [examples[index].tokens for index in cut],
                None if cells is None else [cells[index] for index in cut],
            )
            for index, text in zip(cut, closed, strict=True):
                texts[index] = text
        return texts

    def _row(self, example: ExampleTokens) -> Callable[..., records.SyntheticExample]:
        """The constructor of an example's row: with its forced tokens, where there can be any."""
        if self.writer.structure is None:
            return records.SyntheticExample
        return functools.partial(records.StructuredExample, forced_tokens=example.forced_tokens)

    def generate(
        self, batch: records.Batch, key: randomness.RunKey, reference: Sequence[str] = ()
    ) -> GeneratedBatch:
        """Decodes one batch; a function of the batch, the reference, the key and the run id alone.

        Args:
            batch: Its contexts in the order of their keyed hashes. An empty batch is
                decoded like any other (METHOD 2).
            key: The run's secret.
            reference: Public or released texts of the same genre (METHOD 4c).
        """
        batch_id = str(batch.batch_id)
        stream = self.decode(batch, self.draws(batch, key), reference=reference)
        examples = split_examples(
            stream, stop_rule=self.stop_rule, max_example_tokens=self.params.max_example_tokens
        )
        texts = self._texts(examples, self.cells(batch))
        released = [
            self._row(example)(
                text=text,
                label=batch.label,
                batch_id=batch_id,
                index_in_batch=index,
                private_tokens=example.private_tokens,
                public_tokens=example.public_tokens,
                truncated=example.truncated,
            )
            for index, (text, example) in enumerate(zip(texts, examples, strict=True))
        ]
        # A forced token has neither a loss nor a price.
        chosen = stream.is_chosen
        loss = None
        if stream.losses is not None:
            places = places_in_examples(
                stream.tokens, stop_rule=self.stop_rule, max_example_tokens=self.params.max_example_tokens
            )
            loss = ex_post.BatchLoss(
                batch_id=batch_id,
                minus_log_alpha=tuple(stream.losses[0, chosen].tolist()),
                log_beta=tuple(stream.losses[1, chosen].tolist()),
                places=tuple(np.array(places, int)[chosen].tolist()),
                is_private=tuple(stream.is_private[chosen].tolist()),
            )
        spending = None
        if stream.spending is not None:
            spending = individual.BatchSpending.of(
                batch_id, individual.Spending(*(part[chosen] for part in stream.spending))
            )
        return GeneratedBatch(examples=released, loss=loss, spending=spending)
