"""JSON objects that commands print or write without a class of their own, as types."""

from typing import TypedDict


class RunIdentity(TypedDict):
    """What may not change between a run and its resumption, as digests, but for the run's public name.

    Attributes:
        run_id: Public name of the run.
        config: Of the settings that decide the output.
        input: Of the input's files.
        model: Of the model's files.
        code: Of this package and of the software that decides the output.
    """

    run_id: str
    config: str
    input: str
    model: str
    code: str


class FittedCenters(TypedDict):
    """Centres that were fitted, without the centres themselves.

    Attributes:
        output: The folder that they are in.
        count: How many there are.
        embedder: Name of what embedded the texts.
        fingerprint: SHA-256 of the centres and all that is known of them.
        corpus_fingerprint: SHA-256 of the public texts.
        corpus_texts: Number of the public texts.
    """

    output: str
    count: int
    embedder: str
    fingerprint: str
    corpus_fingerprint: str
    corpus_texts: int


class Failure(TypedDict):
    """Why a command did not do what it was asked to.

    Attributes:
        error: The error and its causes, for people.
        exit_code: What the command exits with.
    """

    error: str
    exit_code: int
