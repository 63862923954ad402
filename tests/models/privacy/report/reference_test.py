"""What a reference tells a report: where its texts come from, and what the curator vouches for."""

from models.privacy.earlier_release import TextOrigin
from models.privacy.report.reference import given_facts
from tests.models.privacy.report.samples import earlier


def test_public_texts_are_vouched_for() -> None:
    found = given_facts(8, 'abc', TextOrigin(vouched=True))
    assert not found.assumptions_enforced
    (said,) = found.assumptions_of_curator
    assert '(8 of each label, SHA-256 abc) are public and were chosen without' in said
    assert "That is the curator's word: no report and no card of a run lies beside their files" in said


def test_texts_of_a_release_are_named_with_the_run_that_paid_for_them() -> None:
    found = given_facts(8, 'abc', TextOrigin(releases=(earlier('first'), earlier('before', through='first'))))
    (said,) = found.assumptions_enforced
    assert "of the corpus of run 'first'" in said and 'post-processing' in said and 'SHA-256 abc' in said
    (vouched,) = found.assumptions_of_curator
    assert "run 'first' as that run released it" in vouched


def test_texts_of_an_adapter_are_named_with_the_run_that_trained_it() -> None:
    release = earlier('first', tuned=True, sampled_by='samples')
    (said,) = given_facts(8, 'abc', TextOrigin(releases=(release,))).assumptions_enforced
    assert "were sampled, by the run 'samples', from the adapter of run 'first'" in said
