"""An earlier run whose release another one begins with, and the facts of a run that begins with its texts."""

import dataclasses

from models.privacy.facts import Facts


@dataclasses.dataclass(frozen=True, kw_only=True)
class EarlierRun:
    """The run that released the texts or the adapter which another run begins with. All fields are public.

    Attributes:
        run_id: Its public name.
        dataset: Name under which a ledger charged it; None, like the next, where none did.
        run_number: Its place among the runs charged to that dataset, from 1.
        sampled_by: The run that sampled the texts from the adapter which `run_id` trained, for nothing; None
            where `run_id` released the texts, or the adapter, itself.
    """

    run_id: str
    dataset: str | None
    run_number: int | None
    sampled_by: str | None = None


def charged_to(dataset: str | None) -> str:
    """Where a run was charged, in words: to a dataset of a ledger, or to none."""
    return 'to no ledger' if dataset is None else f'to dataset {dataset!r} of a ledger'


def public_texts(what: str) -> Facts:
    """The facts of a run that begins with a file which the curator vouches for.

    Args:
        what: What the report calls these texts: 'the first list'.
    """
    return Facts(
        assumptions_of_curator=(
            f'The texts of {what} are public: whoever wrote or chose them saw none of these records.',
        ),
    )


def released_texts(what: str, earlier: EarlierRun, *, dataset: str | None) -> Facts:
    """The facts of a run that begins with a corpus which an earlier run released.

    Args:
        what: What the report calls these texts: 'the first list'.
        earlier: That run. If it names this run's dataset, the caller has looked it up in the ledger.
        dataset: Name under which this run is charged; None if no ledger charges it.
    """
    name = f'{what[0].upper()}{what[1:]} is the corpus that the run {earlier.run_id!r} released'
    if earlier.sampled_by is not None:
        name = (
            f'{what[0].upper()}{what[1:]} was sampled, by the run {earlier.sampled_by!r}, from the adapter '
            f'that the run {earlier.run_id!r} released'
        )
    if earlier.dataset is not None and earlier.dataset == dataset:
        return Facts(
            assumptions_enforced=(
                f'{name}. The ledger charged that before this run, as run {earlier.run_number:,} on dataset '
                f'{dataset!r}: this run is a later step on the same records, and the sum of all runs has '
                'both costs.',
            ),
            not_covered=(
                f'What {what} tells of the records, by the figures of this run alone. The sum of all '
                'runs has both costs.',
            ),
        )
    there, here = charged_to(earlier.dataset), charged_to(dataset)
    of_what = 'whose corpus' if earlier.sampled_by is None else 'a sample of whose adapter'
    return Facts(
        assumptions_of_curator=(
            f'The records of the run {earlier.run_id!r}, {of_what} is {what}, are others than '
            f'these, or its cost is counted too. That run was charged {there}, this one {here}, and no sum '
            'of a ledger has both.',
        ),
        not_covered=(
            f'What {what}, released by the run {earlier.run_id!r}, tells of the records that it was '
            'made of. Every figure of this report is of this run alone, given these texts: unless those '
            'records are others, its cost is added.',
        ),
    )
