"""What a structure of the examples tells a report: why it is free (README step 2c)."""

from models.privacy.facts import Facts

FACTS = Facts(
    assumptions_enforced=(
        'Which tokens the structure allows is a function of the tokens of the example so far and of public '
        'settings. Every prediction, of private prompts and public ones, is taken given that one of them '
        'comes, and has the mass that it had. A token that is allowed alone is emitted without a vote and '
        'without a test: it is the same whatever the records say, and costs nothing.',
    ),
    assumptions_of_curator=('The structure of the examples was chosen without a look at the records.',),
)
