"""The facts of the reference for a report (METHOD 4c): where its texts come from."""

import dataclasses

from models.privacy.facts import Facts
from models.privacy.report.earlier_run import charged_to

ROUNDS = Facts(
    assumptions_enforced=(
        'The reference is text that this run releases, so nothing has to be assumed of it: a public part of '
        'the batches of each label is decoded first, with the public prompt, and complete examples of these, '
        'picked by a public hash, are the reference of the others. A record is in one batch and so in one '
        'round: later text is a function of released text and of the records of its own batch.',
    )
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Release:
    """An earlier run whose corpus gives the texts of the reference. All fields are public.

    Attributes:
        run_id: Public name of the run.
        dataset: Name under which a ledger charged it; None, like the next two, if none did.
        run_number: Its place among the runs charged to that dataset, from 1.
        rho: What it was charged; None too if its report does not say so, as of texts of an adapter.
        sampled_by: The run that sampled the texts from the adapter which `run_id` trained, for nothing; None
            if `run_id` released the texts itself.
    """

    run_id: str
    dataset: str | None = None
    run_number: int | None = None
    rho: float | None = None
    sampled_by: str | None = None


def given_facts(size: int, digest: str, release: Release | None, dataset: str | None = None) -> Facts:
    """The facts of a reference whose texts the curator gave.

    Args:
        size: M, the number of texts of each label.
        digest: SHA-256 of the texts, in hexadecimal.
        release: The run whose corpus gave the texts; None for public texts. If it names this run's dataset,
            the caller has looked it up in the ledger (`pipeline.run.charge.check`).
        dataset: Name under which this run is charged; None if no ledger charges it.
    """
    which = f'{size} of each label, SHA-256 {digest}'
    if release is None:
        return Facts(
            assumptions_of_curator=(
                f"The reference's texts ({which}) are public and were chosen without a look at the records.",
            )
        )
    source = (
        f"The reference's texts ({which}) are of the corpus of run {release.run_id!r}, which is "
        'differentially private itself'
        if release.sampled_by is None
        else f"The reference's texts ({which}) were sampled, by the run {release.sampled_by!r}, from the "
        f'adapter of run {release.run_id!r}, which is differentially private itself'
    )
    if release.dataset is None or release.dataset != dataset:
        there, here = charged_to(release.dataset), charged_to(dataset)
        return Facts(
            assumptions_of_curator=(
                f'{source}. That run was charged {there}, this one {here}: where both are of the same '
                'records, no sum of a ledger has both costs, and whoever adds up the runs counts both.',
            )
        )
    return Facts(
        assumptions_enforced=(
            f'{source}. The ledger charged it before this run, as run {release.run_number:,} on dataset '
            f'{release.dataset!r}: its text is post-processing, and the sum of all runs has both costs.',
        ),
        assumptions_of_curator=(
            f'The reference comes from the corpus of run {release.run_id!r} as that run released it.',
        ),
    )
