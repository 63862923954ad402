"""The one table of methods: what makes a corpus from records, what it costs, and what it says of itself.

A method receives the records, in their groups, and the plan of batches. What surrounds it is
the same for all: reading, counting, the ledger, the folders and the reports. `register` adds
one. Heavy libraries are imported where they are used, so that a price is known at once.
"""

import abc
import typing
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from models.privacy import accounting
from pipeline import fine_tuning

if typing.TYPE_CHECKING:
    import apache_beam as beam

    from models.batching import BatchPlan
    from models.privacy.facts import MethodFacts
    from models.privacy.report import BatchFacts, ContextSpending, ExPostLosses, PrivacyReport
    from pipeline.config import JobConfig
    from transforms.write import Columns, Files


class Method(abc.ABC):
    """One way from records to a corpus: stateless, and known by its name.

    Attributes:
        name: Of the flag --method.
        summary: What it does, for `--help`.
        panels: Panels of `--help` whose settings are its own, in addition to those that every
            run has (Input, Output, Runner).
        open_steps: Labels of steps whose errors are of the model or without data, so that they
            may be shown. All other errors stay with the curator.
        votes: Whether batches of contexts vote on tokens, so that the settings of votes are its own.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    panels: ClassVar[tuple[str, ...]]
    open_steps: ClassVar[frozenset[str]] = frozenset()
    votes: ClassVar[bool] = True

    @abc.abstractmethod
    def check(self, config: 'JobConfig') -> None:
        """Refuses settings that do not go together; reads no file but named public ones.

        Raises:
            ValueError: See above.
        """

    @abc.abstractmethod
    def has_price_in_advance(self, config: 'JobConfig') -> bool:
        """Whether a run of these settings has a cost before it starts."""

    @abc.abstractmethod
    def cost(self, config: 'JobConfig') -> Mapping[str, accounting.DpEvent]:
        """Event of each of its own stages, by name; noisy counts of groups and centres are not among them.

        Raises:
            ValueError: It has no price in advance.
        """

    @abc.abstractmethod
    def facts(self, config: 'JobConfig', prepared: Any) -> 'MethodFacts':
        """What it tells a report.

        Args:
            config: The run.
            prepared: What `prepare` returned.
        """

    @abc.abstractmethod
    def prepare(self, config: 'JobConfig') -> Any:
        """What workers build it from, picklable; looks at models and prompts before anything is paid.

        Raises:
            ValueError: A prompt does not fit.
            FileNotFoundError: A file of the model is not there.
        """

    @abc.abstractmethod
    def columns(self, config: 'JobConfig') -> 'Columns':
        """The corpus's columns and totals, but for what a run's labels add."""

    def columns_with_labels(self, config: 'JobConfig') -> 'Columns':
        """The corpus's columns and totals, with the values of attributes and declared words."""
        columns = self.columns(config).with_attributes(config.attributes)
        return columns.with_label_words(config.declared_words)

    @abc.abstractmethod
    def transform(
        self, config: 'JobConfig', prepared: Any, plan: 'beam.PCollection[BatchPlan]'
    ) -> 'beam.PTransform':
        """Records -> (rows, sizes, facts, counted), of which only the first may be released.

        Four PCollections. Rows are those of `columns`. Sizes are (batch id, contexts), facts
        `BatchFacts` and counted numbers of records, by the field of the curator's report that they are
        for; all three may be empty.

        Args:
            config: The run.
            prepared: What `prepare` returned.
            plan: The single plan of batches.
        """

    @abc.abstractmethod
    def of_batches(
        self, config: 'JobConfig', facts: 'Sequence[BatchFacts]'
    ) -> 'ExPostLosses | ContextSpending | None':
        """What the curator's report says of its batches' losses or spending; None where it has neither."""

    @abc.abstractmethod
    def pages(self, config: 'JobConfig', prepared: Any, privacy_report: 'PrivacyReport') -> 'Files':
        """The files beside the corpus, by name: those that people read, and what else it releases.

        Args:
            config: The run.
            prepared: What `prepare` returned.
            privacy_report: Its report.
        """


_OF_TUNING = {
    name: 'It is a setting of --method fine-tune: private prediction trains nothing.'
    for name in fine_tuning.SETTINGS
    if name != 'adapter'  # which any model may have
}


class PrivatePrediction(Method):
    """Batches of records vote on every token (METHOD 1 to 5)."""

    name = 'predict'
    summary = 'batches of records vote on every token of a frozen model'
    panels = ('Privacy', 'Generation', 'Model')
    open_steps = frozenset({'Generate/FirstRound/Decode', 'Generate/KeepReference', 'Generate/Decode'})

    def check(self, config: 'JobConfig') -> None:
        fine_tuning.refuse(config, _OF_TUNING, self.name)
        config.params()  # the mechanism's settings check themselves
        _ = config.structure  # so does a schema

    def has_price_in_advance(self, config: 'JobConfig') -> bool:
        return not config.params().is_ex_post

    def cost(self, config: 'JobConfig') -> Mapping[str, accounting.DpEvent]:
        return {'generation': accounting.generation_event(config.params())}

    def facts(self, config: 'JobConfig', prepared: Any) -> 'MethodFacts':
        from models.privacy.facts import Facts
        from models.privacy.report import adapter, prediction, reference, structure, tuning

        given = prepared.reference
        of_reference: tuple[Facts, ...] = ()
        if given is not None:
            size = config.reference_size
            of_reference = (reference.given_facts(size, given.digest, given.release, given.dataset),)
        elif config.resolved_reference_rounds == 2:
            of_reference = (reference.ROUNDS,)
        of_structure = () if config.structure is None else (structure.FACTS,)
        of_adapter, released = None, prepared.adapter
        if released is not None:
            card = released.card
            of_adapter = adapter.given_facts(
                tuning.TrainedBy(run_id=card.run_id, dataset=card.dataset, run_number=card.run_number),
                factors=card.factors,
                epsilon=card.epsilon,
                delta=card.delta,
                unit=card.unit,
                own_unit=config.unit,
                dataset=released.dataset,
            )
        return prediction.facts(config.params(), (*of_reference, *of_structure), of_adapter)

    def prepare(self, config: 'JobConfig') -> Any:
        from pipeline.run.settings import generator_settings

        settings = generator_settings(config)
        settings.check_prompts(config.label_values)
        return settings

    def columns(self, config: 'JobConfig') -> 'Columns':
        from transforms import predict

        return predict.COLUMNS if config.structure is None else predict.STRUCTURED_COLUMNS

    def transform(
        self, config: 'JobConfig', prepared: Any, plan: 'beam.PCollection[BatchPlan]'
    ) -> 'beam.PTransform':
        from pipeline.run.settings import text_limit
        from transforms import predict

        return predict.PredictText(
            prepared,
            plan,
            config.resolved_work_dir,
            rounds=config.resolved_reference_rounds,
            reference_size=config.reference_size,
            text_limit=text_limit(config),
            accelerator=config.accelerator,
        )

    def of_batches(
        self, config: 'JobConfig', facts: 'Sequence[BatchFacts]'
    ) -> 'ExPostLosses | ContextSpending | None':
        from models.privacy import report
        from models.privacy.ex_post import BatchLoss
        from models.privacy.individual import BatchSpending

        params = config.params()
        if params.is_ex_post:
            return report.ex_post_losses([of for of in facts if isinstance(of, BatchLoss)], params)
        if params.is_individual:
            return report.context_spending([of for of in facts if isinstance(of, BatchSpending)], params)
        return None

    def pages(self, config: 'JobConfig', prepared: Any, privacy_report: 'PrivacyReport') -> 'Files':
        from pipeline.pages import dataset_card, report_page
        from transforms.run_files import CARD, REPORT_PAGE

        # What language other models write in nobody declared.
        languages = () if config.model != 'bundled' else ('en',)
        columns = self.columns_with_labels(config)
        card = dataset_card.render_card(privacy_report, languages=languages, columns=columns.meanings)
        return {REPORT_PAGE: report_page.render_html(privacy_report).encode(), CARD: card.encode()}


class FineTuning(Method):
    """DP-SGD trains an adapter, and texts are sampled with it (FT)."""

    name = fine_tuning.NAME
    summary = 'DP-SGD trains an adapter of the model, and texts are sampled with it'
    panels = ('Privacy', 'Generation', 'Tuning', 'Model')
    open_steps = frozenset({'Generate/Sample'})
    votes = False

    def check(self, config: 'JobConfig') -> None:
        fine_tuning.check(config)

    def has_price_in_advance(self, config: 'JobConfig') -> bool:
        return True

    def cost(self, config: 'JobConfig') -> Mapping[str, accounting.DpEvent]:
        return fine_tuning.cost(fine_tuning.params(config))

    def facts(self, config: 'JobConfig', prepared: Any) -> 'MethodFacts':
        from models.privacy.report import structure, tuning

        card = None if config.adapter is None else fine_tuning.read_card(config.adapter)
        trained_by = None if card is None else tuning.TrainedBy(
            run_id=card.run_id, dataset=card.dataset, run_number=card.run_number
        )  # fmt: skip
        sampling = () if config.structure is None else (structure.FACTS_OF_SAMPLING,)
        if config.label_mix:
            sampling = (*sampling, tuning.LABEL_MIX)
        elif prepared.params.label_mix_rho is not None and config.writes_texts:
            sampling = (*sampling, tuning.COUNTED_MIX)
        return tuning.facts(prepared.params, trained_by, sampling, writes_texts=config.writes_texts)

    def prepare(self, config: 'JobConfig') -> Any:
        return fine_tuning.settings(config)

    def columns(self, config: 'JobConfig') -> 'Columns':
        from transforms import finetune

        return finetune.COLUMNS

    def transform(
        self, config: 'JobConfig', prepared: Any, plan: 'beam.PCollection[BatchPlan]'
    ) -> 'beam.PTransform':
        from transforms import finetune

        return finetune.FineTuneText(
            prepared,
            plan,
            config.resolved_work_dir,
            adapter=None if config.adapter is None else fine_tuning.adapter_folder(config.adapter),
            text_limit=fine_tuning.text_limit(config),
            accelerator=config.accelerator,
        )

    def of_batches(self, config: 'JobConfig', facts: 'Sequence[BatchFacts]') -> None:
        return None

    def pages(self, config: 'JobConfig', prepared: Any, privacy_report: 'PrivacyReport') -> 'Files':
        columns = self.columns_with_labels(config)
        return fine_tuning.pages(config, prepared, privacy_report, columns)


METHODS: dict[str, Method] = {}


def register(method: Method) -> None:
    """Adds a method: the one place that a new one is named in.

    Raises:
        ValueError: The name is taken.
    """
    if method.name in METHODS:
        raise ValueError(
            f'Expected a new name, got name={method.name!r}, which is taken. Give the method another one.'
        )
    METHODS[method.name] = method


register(PrivatePrediction())
register(FineTuning())
