"""The shipped weights do what the job needs of them: they continue what the prompt shows."""

import pathlib

import pytest

from tools.bundled import evaluate

DATA = pathlib.Path(__file__).parents[4] / 'shared' / 'data'


@pytest.mark.heavy
def test_texts_of_the_topic_lower_the_loss_and_others_do_not_help_as_much() -> None:
    if not (DATA / 'dbpedia').is_dir():
        pytest.skip(f'SKIPPED FOR WANT OF DATA: {DATA / "dbpedia"} is not there')
    model, parameters, tokenizer = evaluate.load()
    texts = evaluate.held_out_texts(DATA)
    result = evaluate.conditioning(model, parameters, tokenizer, texts, targets_per_topic=2)
    assert result.targets == 14 * 2
    # The weights are fixed, so this is no statistical test; five standard errors say that
    # the gain is the model's and not the choice of targets.
    assert result.gain > 5 * result.gain_standard_error
    assert result.same_topic < result.other_topic - 0.1
    assert result.same_topic < result.no_texts - 0.04
    # A control: with the topics' texts dealt out anew, nothing is left to gain.
    pooled = [text for topic in sorted(texts) for text in texts[topic]]
    dealt = {str(i): pooled[i::14] for i in range(14)}
    control = evaluate.conditioning(model, parameters, tokenizer, dealt, targets_per_topic=2)
    assert abs(control.gain) < result.gain / 4
