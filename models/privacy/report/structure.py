"""The facts of a structure of the examples for a report: why it costs nothing (README step 2c, section 9)."""

from models.privacy.facts import Facts

_CHOSEN = 'The structure of the examples was chosen without a look at the records.'

FACTS = Facts(
    assumptions_enforced=(
        'Which tokens the structure allows is a function of the tokens of the example so far and of public '
        'settings. Every prediction, of private prompts and public ones, is taken given that one of them '
        'comes, and has the mass that it had. A token that is allowed alone is emitted without a vote and '
        'without a test: it is the same whatever the records say, and costs nothing.',
    ),
    assumptions_of_curator=(_CHOSEN,),
)

# For texts that are sampled from an adapter.
FACTS_OF_SAMPLING = Facts(
    assumptions_enforced=(
        'Which tokens the structure allows is a function of the tokens of the text so far and of public '
        'settings. It masks what is sampled: post-processing, like all of sampling.',
    ),
    assumptions_of_curator=(_CHOSEN,),
)
