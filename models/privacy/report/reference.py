"""The facts of the reference for a report (METHOD 4c): where its texts come from."""

from models.privacy.earlier_release import TextOrigin
from models.privacy.facts import Facts

ROUNDS = Facts(
    assumptions_enforced=(
        'The reference is text that this run releases, so nothing has to be assumed of it: a public part of '
        'the batches of each label is decoded first, with the public prompt, and complete examples of these, '
        'picked by a public hash, are the reference of the others. A record is in one batch and so in one '
        'round: later text is a function of released text and of the records of its own batch.',
    )
)


def given_facts(size: int, digest: str, origin: TextOrigin) -> Facts:
    """The facts of a reference whose texts the curator gave.

    What their release cost, and whose word that is, say the facts of all releases that went in
    (`models.privacy.report.earlier_releases`).

    Args:
        size: M, the number of texts of each label.
        digest: SHA-256 of the texts, in hexadecimal.
        origin: Where the texts come from.
    """
    which = f'{size} of each label, SHA-256 {digest}'
    vouched: tuple[str, ...] = ()
    if origin.vouched:
        vouched = (
            f"The reference's texts ({which}) are public and were chosen without a look at the records. That "
            "is the curator's word: no report and no card of a run lies beside their files or in a folder "
            'above them, so nothing else tells where they come from.',
        )
    return Facts(
        assumptions_enforced=tuple(
            f"The reference's texts ({which}) are of the corpus of run {release.run_id!r}, which is "
            'differentially private itself: they are post-processing of it.'
            if release.sampled_by is None
            else f"The reference's texts ({which}) were sampled, by the run {release.sampled_by!r}, from the "
            f'adapter of run {release.run_id!r}, which is differentially private itself: they are '
            'post-processing of it.'
            for release in origin.direct
        ),
        assumptions_of_curator=(
            *vouched,
            *(
                f'The reference comes from the corpus of run {release.run_id!r} as that run released it.'
                for release in origin.direct
                if release.sampled_by is None
            ),
        ),
    )
