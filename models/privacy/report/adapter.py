"""The facts of a released adapter for a report of private prediction: on whose records it was trained."""

from models.privacy.facts import Facts
from models.privacy.numbers import format_exact, format_up
from models.privacy.params import Unit
from models.privacy.report import prediction
from models.privacy.report.earlier_run import EarlierRun, charged_to


def given_facts(
    trained_by: EarlierRun,
    *,
    factors: str,
    epsilon: float,
    delta: float,
    unit: Unit,
    own_unit: Unit,
    dataset: str | None,
) -> Facts:
    """The facts of a run that decodes with an adapter which an earlier run released.

    Args:
        trained_by: The run that trained it. If it names this run's dataset, the caller has looked it up in
            the ledger (`pipeline.run.charge.check`).
        factors: SHA-256 of its file, in hexadecimal.
        epsilon: The adapter's epsilon at `delta`.
        delta: As the run that trained it set it.
        unit: Whose presence the adapter hides.
        own_unit: Whose presence this run hides.
        dataset: Name under which this run is charged; None if no ledger charges it.
    """
    figures = f'ε = {format_up(epsilon)}, δ = {format_exact(delta)}'
    one = prediction.unit_nouns(unit)[0]
    name = f'The adapter that the model decodes with (SHA-256 {factors})'
    source = (
        f'was trained by the run {trained_by.run_id!r}, and is ({figures})-differentially private itself, '
        f'under adding or removing any one {one}'
    )
    unchanged = (
        f'{name} is the one that the run {trained_by.run_id!r} released, unchanged: its file has the SHA-256 '
        'that its card states, and its weights are those that it was trained on. Private and public prompts '
        'are read by the same adapted model.'
    )
    if trained_by.dataset is not None and trained_by.dataset == dataset:
        return Facts(
            assumptions_enforced=(
                unchanged,
                f'The adapter {source}. The ledger charged that before this run, as run '
                f'{trained_by.run_number:,} on dataset {dataset!r}: this run is a later step on the same '
                'records, and the sum of all runs has both costs.',
            ),
            not_covered=(
                f'What the adapter tells of the records ({figures}), by the figures of this run alone. The '
                'sum of all runs has both costs.',
            ),
        )
    there, here = charged_to(trained_by.dataset), charged_to(dataset)
    added = (
        'its ε is added to that of this run, and its δ to the δ'
        if unit == own_unit
        else 'its cost comes on top of that of this run, under a unit of its own'
    )
    return Facts(
        assumptions_enforced=(unchanged,),
        assumptions_of_curator=(
            f'The records that the adapter was trained on are others than these, or its cost is counted too: '
            f'it {source}. That run was charged {there}, this one {here}, and no sum of a ledger has both.',
        ),
        not_covered=(
            f'The training of the adapter by the run {trained_by.run_id!r} ({figures}, for any one {one}). '
            'Every figure of this report is of this run alone, given the adapter. Nothing here can tell '
            f'whether the adapter was trained on these records: unless they are others, {added}.',
        ),
    )
