"""The facts of a released adapter for a report of private prediction: on whose records it was trained."""

from models.privacy.earlier_release import EarlierRelease
from models.privacy.facts import Facts


def given_facts(trained_by: EarlierRelease, *, factors: str) -> Facts:
    """The facts of a run that decodes with an adapter which an earlier run released.

    What it cost, and whose word that is, say the facts of all releases that went in
    (`models.privacy.report.earlier_releases`).

    Args:
        trained_by: The run that trained it.
        factors: SHA-256 of its file, in hexadecimal.
    """
    return Facts(
        assumptions_enforced=(
            f'The adapter that the model decodes with (SHA-256 {factors}) is the one that the run '
            f'{trained_by.run_id!r} released, unchanged: its file has the SHA-256 that its card states, and '
            'its weights are those that it was trained on. Private and public prompts are read by the same '
            'adapted model.',
        ),
    )
