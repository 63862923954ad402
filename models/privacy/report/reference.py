"""What the reference tells a report (METHOD 4c): where its texts come from, and what that takes."""

from models.privacy.facts import Facts

ROUNDS = Facts(
    assumptions_enforced=(
        'The reference is text that this run releases, so nothing has to be assumed of it: a public part of '
        'the batches of each label is decoded first, with the public prompt, and complete examples of these, '
        'picked by a public hash, are the reference of the others. A record is in one batch and so in one '
        'round: later text is a function of released text and of the records of its own batch.',
    )
)


def given_facts(size: int, digest: str, release: str | None) -> Facts:
    """What it takes that the curator gave the texts.

    Args:
        size: M, of texts of each label.
        digest: SHA-256 of the texts, in hexadecimal.
        release: Public name of the run whose corpus they are of; None for public texts.
    """
    which = f'{size} of each label, SHA-256 {digest}'
    if release is None:
        return Facts(
            assumptions_of_curator=(
                f"The reference's texts ({which}) are public and were chosen without a look at the records.",
            )
        )
    return Facts(
        assumptions_of_curator=(
            f"The reference's texts ({which}) are of the corpus of run {release!r}, which is differentially "
            'private itself. Where that corpus is of the same records, its cost is counted beside this one: '
            'by the same ledger, or by whoever adds up the runs.',
        )
    )
