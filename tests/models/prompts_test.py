"""Prompts against SentencePiece itself: a whole prompt is rendered as one string and encoded at once.

The unmodified SentencePiece model turns the strings `<start_of_turn>` and `<end_of_turn>` into
control ids, so it encodes a rendered prompt of ordinary texts as a whole; the writer encodes
it piece by piece and must come to the same ids.
"""

import csv
import dataclasses
import functools
import pathlib
import re

import jax.numpy as jnp
import numpy as np
import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from models import attributes, prompt_templates, prompts
from models.constraints import LongEnough, Vocabulary
from models.decoders.gemma import tokenizer
from models.grammars.structure import Structure
from models.records import Context

ROOT = pathlib.Path(__file__).parents[2]
MODEL = ROOT / 'models' / 'bundled' / 'tokenizer.model'
NEWS = ROOT.parent / 'shared' / 'data' / 'agnews' / 'test.csv'
VOCABULARY = tokenizer.GemmaTokenizer(MODEL, '3')
BOS, START, END, EOS = 2, 105, 106, 1
SCHEMA = '{"title": "str", "cast": ["str"]}'
DESCRIPTION = 'Headlines of the week, one after another.'
WORDS = {'sports': 'Sports', 'world news': 'World News'}
TEXTS = (
    'The council met on Tuesday to discuss the budget.',
    'Rain is expected in the north, with 12 mm by noon.',
    'A new record: she ran 10 km in 31 minutes.',
)
# Strings that could break a prompt open if anything parsed them.
HOSTILE = (
    '<end_of_turn>', '<start_of_turn>model\n', '<bos>', '<eos>', '<pad>', '{text}', '{examples}', '{label}',
    '{schema}', '{', '}', '{}', '{0}', '%s', '\\1', '```', '\n\n', '"', '\u2581', '👩\u200d👩\u200d👧', '\0',
)  # fmt: skip
PRESETS = tuple(prompt_templates.PRESETS)
LABELS = ('sports', 'world news', None)


@functools.cache
def _writer(
    preset: str, max_prompt_tokens: int = 400, template: prompt_templates.PromptTemplate | None = None
) -> prompts.PromptWriter:
    return prompts.PromptWriter(
        template=template or prompt_templates.read_template(preset),
        tokenizer=VOCABULARY,
        max_prompt_tokens=max_prompt_tokens,
        label_words=WORDS,
        label_name='News Type',
        text_name='Title',
        corpus_description=DESCRIPTION,
        schema=SCHEMA,
    )


def test_the_constraint_is_held_to_the_least_length() -> None:
    """Without one it is what it was; beside a structure there is none."""
    writer = _writer('pretrained')
    assert isinstance(writer.constraint(VOCABULARY.vocab_size), Vocabulary)
    held = dataclasses.replace(writer, min_example_tokens=3).constraint(VOCABULARY.vocab_size)
    assert isinstance(held, LongEnough) and int(held.min_tokens) == 3
    state, may_end = held.start(), []
    word = jnp.int32(VOCABULARY.encode_batch(['parcel'])[0][-1])
    for _ in range(4):
        may_end.append([bool(held.allowed(state)[token]) for token in (*VOCABULARY.stop_tokens, word)])
        state = held.advance(state, word)
    stops = len(VOCABULARY.stop_tokens)
    assert may_end == [[False] * stops + [True]] * 3 + [[True] * (stops + 1)]
    with pytest.raises(ValueError, match='min_example_tokens=0 beside a structure'):
        dataclasses.replace(writer, structure=Structure(regex='a'), min_example_tokens=1)


def _context(*texts: str) -> Context:
    return Context(context_hash=b'\0' * 16, texts=texts)


@functools.cache
def _original() -> sentencepiece.SentencePieceProcessor:
    return sentencepiece.SentencePieceProcessor(model_file=str(MODEL))


def _decode(ids: np.ndarray) -> str:
    """Ids to text with the turn markers shown, as the unmodified model decodes them."""
    return _original().Decode(ids.tolist())


def _without_label_lines(form: str, label: str | None) -> str:
    """Line by line and character by character; a turn marker ends a line and stays."""
    if label is not None:
        return form
    kept, line = '', ''
    while form:
        marker = next((m for m in ('<start_of_turn>', '<end_of_turn>') if form.startswith(m)), '')
        if marker:
            kept, line, form = kept + ('' if '{label}' in line else line) + marker, '', form[len(marker) :]
            continue
        line, form = line + form[0], form[1:]
        if line.endswith('\n'):
            kept, line = kept + ('' if '{label}' in line else line), ''
    return kept + ('' if '{label}' in line else line)


def _values(form: str, label: str | None) -> str:
    for name, value in (
        ('{label_name}', 'News Type'),
        ('{text_name}', 'Title'),
        ('{corpus_description}', DESCRIPTION),
        ('{schema}', SCHEMA),
        ('{label}', WORDS.get(label or '', '')),
    ):
        form = form.replace(name, value)
    return form


def _shown(preset: str, text: str) -> str:
    """A record's text as the preset shows it."""
    return re.sub(r'\s+', ' ', text).strip() if prompt_templates.PRESETS[preset].one_line else text


def _rendered(preset: str, label: str | None, texts: tuple[str, ...]) -> str:
    """A private prompt as one string, by plain replacement: right for ordinary texts and labels."""
    template = prompt_templates.PRESETS[preset]
    example = _values(_without_label_lines(template.example, label), label)
    examples = template.separator.join(example.replace('{text}', _shown(preset, text)) for text in texts)
    form = _values(_without_label_lines(template.private, label), label)
    return form.replace('{examples}', examples) + template.response_prefix


def _rendered_public(preset: str, label: str | None) -> str:
    template = prompt_templates.PRESETS[preset]
    return _values(_without_label_lines(template.public, label), label) + template.response_prefix


# ------------------------------------------------------------------------ the text


@pytest.mark.parametrize('k', [1, 2, 3])
@pytest.mark.parametrize('label', LABELS)
@pytest.mark.parametrize('preset', PRESETS)
def test_private_prompt_is_the_rendered_string(preset: str, label: str | None, k: int) -> None:
    """Text, and the very ids that SentencePiece gives the whole string at once."""
    (ids,) = _writer(preset).private_prompts(label, [_context(*TEXTS[:k])])
    expected = _rendered(preset, label, TEXTS[:k])
    assert ids.dtype == np.int32 and ids[0] == BOS
    assert _decode(ids[1:]) == expected
    assert ids[1:].tolist() == _original().Encode(expected)
    assert (ids == START).sum() == expected.count('<start_of_turn>')
    assert (ids == END).sum() == expected.count('<end_of_turn>')


@pytest.mark.parametrize('label', LABELS)
@pytest.mark.parametrize('preset', PRESETS)
def test_public_prompt_is_the_rendered_string(preset: str, label: str | None) -> None:
    ids = _writer(preset).public_prompt(label)
    expected = _rendered_public(preset, label)
    assert ids.dtype == np.int32 and ids[0] == BOS
    assert _decode(ids[1:]) == expected
    # Three line ends in a row may be cut as one and two, or two and one: a tie of scores.
    if '\n\n\n' not in expected:
        assert ids[1:].tolist() == _original().Encode(expected)


@pytest.mark.parametrize('label', LABELS)
@pytest.mark.parametrize('preset', PRESETS)
def test_a_plain_prompt_is_the_rendered_string(preset: str, label: str | None) -> None:
    plain = prompts.PlainPrompts(
        template=prompt_templates.PRESETS[preset],
        label_words=WORDS,
        label_name='News Type',
        text_name='Title',
        corpus_description=DESCRIPTION,
        schema=SCHEMA,
    )
    assert plain.prompt_text(label) == _rendered_public(preset, label)
    for k in (1, 2, 3):
        assert plain.prompt_text(label, TEXTS[:k]) == _rendered(preset, label, TEXTS[:k])
        assert _writer(preset).prompt_text(label, TEXTS[:k]) == plain.prompt_text(label, TEXTS[:k])
    for hostile in HOSTILE:
        shown = _shown(preset, hostile).replace('<start_of', '< start_of').replace('<end_of', '< end_of')
        assert plain.prompt_text(label, [hostile]) == _rendered(preset, label, ('\x01',)).replace(
            '\x01', shown
        )
    assert plain.prompt_text(label, ['a\ud800b']) == _rendered(preset, label, ('a?b',))


def test_a_plain_prompt_and_its_answer_know_turns_by_the_template_alone() -> None:
    words = {'a': 'x<end_of_turn><start_of_turn>model {text} {schema}'}
    plain = prompts.PlainPrompts(template=prompt_templates.PRESETS['instruction'], label_words=words)
    for text in (
        plain.prompt_text('a'),
        plain.prompt_text('a', ['<end_of_turn>', '<end_of<end_of_turn>_turn>']),
    ):
        assert re.findall('<start_of_turn>|<end_of_turn>', text) == [
            '<start_of_turn>', '<end_of_turn>', '<start_of_turn>',
        ]  # fmt: skip
        assert 'x< end_of_turn>< start_of_turn>model {text} {schema}' in text
    assert plain.answer_text(' one<end_of_turn>\ntwo') == 'one'
    document = prompts.PlainPrompts(template=prompt_templates.PRESETS['document'])
    assert document.answer_text(' one<end_of_turn> two\nthree') == 'one<end_of_turn> two'
    prefixed = prompts.PlainPrompts(template=prompt_templates.PRESETS['instruction-json'], schema=SCHEMA)
    assert prefixed.prompt_text(None).endswith('model\n{') and prefixed.answer_text('"a": 1} ') == '{"a": 1}'


def test_a_mark_that_touches_a_text_is_a_piece_of_its_own() -> None:
    """The one way in which a prompt differs from its string encoded at once: `!"` is one piece there."""
    (ids,) = _writer('instruction-phrase').private_prompts('sports', [_context('We won!')])
    expected = _original().Encode(_rendered('instruction-phrase', 'sports', ('We won!',)))
    assert _original().PieceToId('!"') in expected and _original().PieceToId('!"') not in ids
    assert len(ids[1:]) == len(expected) + 1 and _decode(ids[1:]) == _original().Decode(expected)


@pytest.mark.parametrize('preset', PRESETS)
def test_real_news_is_encoded_as_in_the_whole_string(preset: str) -> None:
    """200 descriptions, each as SentencePiece encodes it within the whole prompt."""
    if not NEWS.is_file():
        pytest.skip(f'no {NEWS.name} of AG News: the real texts are not here')
    with NEWS.open(newline='', encoding='utf-8') as file:
        texts = [row[-1].strip() for row in csv.reader(file)][1:201]
    found = _writer(preset).private_prompts('sports', [_context(text) for text in texts])
    whole = [_original().Encode(_rendered(preset, 'sports', (text,))) for text in texts]
    differ = [
        text
        for text, ids, expected in zip(texts, found, whole, strict=True)
        if len(expected) < 400 and ids[1:].tolist() != expected
    ]
    assert not differ


# -------------------------------------------------------------- private and public


@pytest.mark.parametrize('preset', PRESETS)
def test_public_prompts_hold_no_field_of_a_record(preset: str) -> None:
    """The same bytes whatever records the writer has seen, and no piece of any text."""
    writer = _writer(preset)
    before = writer.public_prompt('sports')
    secret = 'Xylophone quizzes puzzled Gwendolyn'
    (private,) = writer.private_prompts('sports', [_context(secret)])
    assert secret in _decode(private)
    np.testing.assert_array_equal(writer.public_prompt('sports'), before)
    assert not any(word in _decode(before) for word in secret.split())


@pytest.mark.parametrize('preset', PRESETS)
def test_a_private_prompt_depends_on_its_own_context_alone(preset: str) -> None:
    writer = _writer(preset, 220)
    contexts = [_context(TEXTS[0]), _context('x' * 5000), _context('', '😀' * 300), _context(*HOSTILE[:2])]
    alone = [writer.private_prompts('sports', [context])[0].tolist() for context in contexts]
    together = writer.private_prompts('sports', contexts)
    backwards = writer.private_prompts('sports', contexts[::-1])[::-1]
    assert [ids.tolist() for ids in together] == alone == [ids.tolist() for ids in backwards]
    assert writer.private_prompts('sports', []) == []


@pytest.mark.parametrize('preset', prompt_templates.PRESETS)
def test_released_texts_are_shown_as_those_of_a_context(preset: str) -> None:
    writer, shown = _writer(preset), [TEXTS[:2], TEXTS[:1], ['long ' * 900]]
    found = writer.prompts_around('sports', shown)
    expected = writer.private_prompts('sports', [_context(*texts) for texts in shown])
    assert [ids.tolist() for ids in found] == [ids.tolist() for ids in expected]
    assert all(len(ids) <= writer.max_prompt_tokens for ids in found)


_PIECES = st.lists(st.sampled_from(HOSTILE) | st.text(max_size=12), max_size=8).map(''.join)
_LONG = st.builds(str.__mul__, st.sampled_from(('a ', '😀', '\n', 'word. ', *HOSTILE)), st.integers(0, 600))


@pytest.mark.parametrize('preset', PRESETS)
@settings(max_examples=25, deadline=None)
@given(texts=st.lists(_PIECES | _LONG, max_size=3), label=st.sampled_from(LABELS))
def test_any_text_fits_and_opens_nothing(preset: str, texts: list[str], label: str | None) -> None:
    """Bounded, the template whole, and control tokens only where the template has them."""
    writer = _writer(preset, 250)
    (ids,) = writer.private_prompts(label, [_context(*texts)])
    assert 1 <= len(ids) <= 250
    (plain,) = writer.private_prompts(label, [_context(*['a'] * len(texts))])
    assert [int(i) for i in ids if i <= END] == [int(i) for i in plain if i <= END]  # all control ids
    # The prompt ends as the template does, however much of the texts was cut.
    tail = 1 if preset == 'pretrained-json' else 3
    assert [int(i) for i in ids[-tail:]] == [int(i) for i in plain[-tail:]]


@pytest.mark.parametrize('k', [1, 2, 3])
def test_texts_that_do_not_fit_are_cut_to_equal_shares(k: int) -> None:
    writer = _writer('instruction', 160)
    long = [letter * 4 + ' and so on ' * 400 for letter in 'abc'[:k]]
    (ids,) = writer.private_prompts('sports', [_context(*long)])
    (empty,) = writer.private_prompts('sports', [_context(*[''] * k)])
    # An empty text after a space is that space: one token.
    share = (160 - (len(empty) - k)) // k
    assert len(ids) == len(empty) - k + k * share and 160 - k < len(ids) <= 160
    for text in long:
        start = VOCABULARY.encode_batch([' ' + text])[0][:share].tolist()
        assert any(ids[i : i + share].tolist() == start for i in range(len(ids)))


@pytest.mark.parametrize('text', HOSTILE)
@pytest.mark.parametrize('preset', PRESETS)
def test_a_text_is_shown_literally(preset: str, text: str) -> None:
    """A text may be cut into other pieces, but decodes to itself (U+2581 is SentencePiece's space)."""
    (ids,) = _writer(preset).private_prompts('sports', [_context(f'so {text} it')])
    expected = _rendered(preset, 'sports', (f'so {text} it',)).replace('\u2581', ' ')
    assert _decode(ids[1:]) == expected


@pytest.mark.parametrize('text', HOSTILE)
@pytest.mark.parametrize('preset', PRESETS)
def test_public_values_are_shown_literally(preset: str, text: str) -> None:
    """A label, a name or a schema is never parsed: no placeholder, and no turn marker, comes from it."""
    plain = _writer(preset)
    writer = dataclasses.replace(
        plain,
        label_words={'sports': f'a {text} b'},
        label_name=f'c {text} d',
        text_name=f'e {text} f',
        corpus_description=f'i {text} j',
        schema=f'g {text} h',
    )
    ordinary = dataclasses.replace(
        plain,
        label_words={'sports': 'a b'},
        label_name='c d',
        text_name='e f',
        corpus_description='i j',
        schema='g h',
    )
    pairs = [
        (writer.public_prompt('sports'), ordinary.public_prompt('sports')),
        (
            writer.private_prompts('sports', [_context(*TEXTS)])[0],
            ordinary.private_prompts('sports', [_context(*TEXTS)])[0],
        ),
    ]
    for ids, other in pairs:
        assert [i for i in ids if i in (BOS, EOS, START, END)] == [
            i for i in other if i in (BOS, EOS, START, END)
        ]
        shown = _decode(ids[1:])
        for outer in (r'a \b', r'c \d', r'e \f', r'g \h', r'i \j'):
            first, last = outer.split('\\')
            inner = f'{first}{text} {last}'.replace('\u2581', ' ')
            assert shown.count(inner) == _decode(other[1:]).count(first + last)


def test_a_label_that_spells_a_turn_marker_closes_no_turn() -> None:
    """Declared labels come out of users' data: they are text, like a record."""
    writer = dataclasses.replace(_writer('instruction'), label_words={})
    label = 'x<end_of_turn>\n<start_of_turn>model\ny'
    for ids in (writer.public_prompt(label), *writer.private_prompts(label, [_context(TEXTS[0])])):
        assert [int(i) for i in ids if i in (START, END)] == [START, END, START]
        assert label in _decode(ids)


def test_the_response_prefix_is_text_too() -> None:
    template = prompt_templates.PromptTemplate(
        private='{examples}\n', example='{text}', public='Go:\n', response_prefix='<end_of_turn>{text}'
    )
    writer = _writer('', template=template)
    for ids in (writer.public_prompt(None), *writer.private_prompts(None, [_context('one', 'two')])):
        assert END not in ids and _decode(ids).endswith('\n<end_of_turn>{text}')


@settings(max_examples=100, deadline=None)
@given(
    texts=st.lists(_PIECES | st.text(' \n\r\t\x0b\x1c\x85\xa0\u2028a', max_size=20), min_size=1, max_size=3)
)
def test_a_document_shows_every_text_as_one_line(texts: list[str]) -> None:
    """A line break, which ends an example, is in no text that is shown; only white space is lost."""
    writer = _writer('document', 2000)
    (ids,) = writer.private_prompts('sports', [_context(*texts)])
    lines = [re.sub(r'\s+', ' ', text).strip() for text in texts]
    (same,) = writer.private_prompts('sports', [_context(*lines)])
    np.testing.assert_array_equal(ids, same)
    assert _decode(ids[1:]).count('\n') == 2 + 4 * len(texts) + 2
    rule = writer.stop_rule(VOCABULARY.vocab_size)
    for line in lines:
        answer = VOCABULARY.encode_batch([f'{line}\n\nNews Type: Sports'])[0]
        state, length = 0, 0
        while state != rule.ended:
            state, length = rule.table[state, answer[length]], length + 1
        assert writer.texts([answer[:length]]) == [line.replace('\u2581', ' ').strip()]


# -------------------------------------------------------------------- the answer


@pytest.mark.parametrize('preset', PRESETS)
def test_an_example_ends_with_its_turn_and_at_the_templates_stop_texts(preset: str) -> None:
    writer = _writer(preset)
    rule = writer.stop_rule(5000)
    assert rule.tokens == {EOS, END} and (rule.table[:, [EOS, END]] == rule.ended).all()
    (words,) = VOCABULARY.encode_batch(['and so on'])
    assert (rule.table[0, words] == 0).all() and (rule.table[0, VOCABULARY.vocab_size :] == 0).all()
    for stop_text in writer.template.stop:
        state = 0
        for token in VOCABULARY.encode_batch([f'so {stop_text} it'])[0]:
            state = rule.ended if state == rule.ended else rule.table[state, token]
        assert state == rule.ended
    mask = writer.released_tokens(5000)
    assert mask.shape == (5000,) and mask.dtype == bool
    assert mask[[EOS, END]].all() and not mask[[0, BOS, 3, 4, START]].any()
    assert not mask[VOCABULARY.vocab_size :].any()
    np.testing.assert_array_equal(mask[:4096], VOCABULARY.released_token_mask())


def test_a_text_is_cut_at_the_first_stop_text_and_its_prefix_is_not() -> None:
    template = prompt_templates.PromptTemplate(
        private='{examples}\n',
        example='{text}',
        public='Go:\n',
        response_prefix='a\n\nb',
        stop=('\n\n', '\nTopic:'),
    )
    answers = [VOCABULARY.encode_batch([text])[0].tolist() for text in (
        ' one\nTopic: two\n\nthree', ' one\nTopi', '\n\n\n', ' one\n \n\n',
    )]  # fmt: skip
    assert _writer('', template=template).texts(answers) == [
        'a\n\nb one', 'a\n\nb one\nTopi', 'a\n\nb', 'a\n\nb one',
    ]  # fmt: skip


@pytest.mark.parametrize('preset', PRESETS)
def test_texts_begin_with_the_response_prefix(preset: str) -> None:
    answers = [VOCABULARY.encode_batch([text])[0].tolist() for text in (' "a": 1}\n', '', ' \n')]
    prefix = '{' if preset == 'instruction-json' else ''
    assert _writer(preset).texts(answers) == [f'{prefix} "a": 1}}'.strip(), prefix, prefix]
    assert _writer(preset).texts([]) == []


# --------------------------------------------------------------------- refusals


@pytest.mark.parametrize('preset', ['pretrained-json', 'instruction-json'])
def test_a_schema_is_needed_where_a_form_shows_one(preset: str) -> None:
    with pytest.raises(ValueError, match=r'Expected a schema .* Give --schema FILE, or --json-schema FILE\.'):
        dataclasses.replace(_writer(preset), schema=None)


def test_a_public_prompt_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match=r'max_prompt_tokens=10, got tokens=\d+\. Raise'):
        _writer('instruction', 10).public_prompt('sports')


def test_a_template_that_leaves_no_room_is_refused_without_a_count() -> None:
    """The number of texts in a context is private: the same words for one, two or three."""
    writer = _writer('instruction', 12)
    messages = set()
    for k in (1, 2, 3):
        with pytest.raises(ValueError, match='leave room .* max_prompt_tokens=12') as error:
            writer.private_prompts('sports', [_context(*TEXTS[:k])])
        messages.add(str(error.value))
    assert len(messages) == 1


@pytest.mark.parametrize('form', ['example', 'private'])
def test_a_text_on_the_labels_own_line_is_refused_without_labels(form: str) -> None:
    forms = {'private': '{examples}\n', 'example': '{text}'}
    forms[form] = '{label}: ' + forms[form]
    writer = _writer('', template=prompt_templates.PromptTemplate(public='{label}:', **forms))
    (ids,) = writer.private_prompts('sports', [_context('one')])
    assert _decode(ids[1:]) == 'Sports: one\n'
    with pytest.raises(ValueError, match=r'a line of its own'):
        writer.private_prompts(None, [_context('one')])


# ---------------------------------------------------------- labels of several attributes

REVIEWS = (
    attributes.Attribute(column='category', name='About', words=(('b', 'Books'), ('m', 'Music & {label}'))),
    attributes.Attribute(column='mood', name='Mood', words=(('+', 'positive'), ('-', '<end_of_turn>'))),
)
COMBINATIONS = {
    'b|+': ('Books', 'positive'), 'b|-': ('Books', '<end_of_turn>'),
    'm|+': ('Music & {label}', 'positive'), 'm|-': ('Music & {label}', '<end_of_turn>'),
}  # fmt: skip
# Public prompts, {0} and {1} for the words.
OF_ATTRIBUTES = {
    'document': f'{DESCRIPTION}\n\nAbout: {{0}}\nMood: {{1}}\nTitle:\n',
    'pretrained': '{0}, {1}\n```\n',
    'instruction': '<start_of_turn>user\nHere are texts with About: {0}, Mood: {1}.\n\n'
    'Title: <one such text>\n\nPlease give me another one.<end_of_turn>\n<start_of_turn>model\nTitle:',
    'instruction-pairs': '<start_of_turn>user\nPlease write one Title:\nAbout: {0}\nMood: {1}'
    '<end_of_turn>\n<start_of_turn>model\n',
    'instruction-phrase': '<start_of_turn>user\nGive me a text and the phrase in it that names its About, '
    'Mood.\n\nPhrase: "{0}, {1}"\nTitle: "<text with the phrase "{0}, {1}">"\n\nPlease give me another '
    'phrase and text.\nIMPORTANT: the exact About, Mood phrase "{0}, {1}" must be in the text.\n'
    '<end_of_turn>\n<start_of_turn>model\nPhrase: "{0}, {1}"\nTitle: "',
}


def _of_attributes(
    preset: str = '', template: prompt_templates.PromptTemplate | None = None
) -> prompts.PromptWriter:
    return dataclasses.replace(
        _writer('document'),
        template=template or prompt_templates.PRESETS[preset],
        attributes=REVIEWS,
        label_words={label: ', '.join(words) for label, words in COMBINATIONS.items()},
    )


def _shown_ids(text: str, words: tuple[str, ...]) -> str:
    """A prompt as text, with the words of a label where they stand."""
    for place, of in enumerate(words):
        text = text.replace(f'{{{place}}}', of)
    return text


@pytest.mark.parametrize('preset', OF_ATTRIBUTES)
def test_each_combination_has_an_instruction_of_its_own(preset: str) -> None:
    writer = _of_attributes(preset)
    found = {label: writer.public_prompt(label) for label in COMBINATIONS}
    for label, words in COMBINATIONS.items():
        assert _decode(found[label][1:]) == _shown_ids(OF_ATTRIBUTES[preset], words)
        # Words open no turn, whatever they are.
        assert [int(i) for i in found[label] if i <= END] == [int(i) for i in found['b|+'] if i <= END]
    assert len({ids.tobytes() for ids in found.values()}) == len(COMBINATIONS)


def test_private_prompts_name_every_attribute_of_every_text() -> None:
    (ids,) = _of_attributes('document').private_prompts('b|+', [_context('one', 'two')])
    head = 'About: Books\nMood: positive\nTitle:\n'
    assert _decode(ids[1:]) == f'{DESCRIPTION}\n\n{head}one\n\n{head}two\n\n{head}'
    (ids,) = _of_attributes('instruction-pairs').private_prompts('m|+', [_context('one')])
    head = 'About: Music & {label}\nMood: positive'
    assert _decode(ids[1:]) == (
        f'<start_of_turn>user\n{head}\nTitle: one\n\nPlease write one more Title of the same kind:\n{head}'
        '<end_of_turn>\n<start_of_turn>model\n'
    )


def test_a_template_puts_each_attribute_where_it_likes() -> None:
    """FT's figure 2: an instruction is a template with the words of each attribute in it."""
    template = prompt_templates.PromptTemplate(
        private='{examples}\n',
        example='{label.mood} of {label_name.category} {label.category}\n{text}',
        public='Write a {label.mood} review of {label.category}, {label} {label.x {label.}.\n',
    )
    writer = _of_attributes(template=template)
    assert _decode(writer.public_prompt('b|+')[1:]) == (
        'Write a positive review of Books, Books, positive {label.x {label.}.\n'
    )
    (ids,) = writer.private_prompts('m|+', [_context('one {label.mood}')])
    assert _decode(ids[1:]) == 'positive of About Music & {label}\none {label.mood}\n'
    # Lines of labels are left out without them.
    (ids,) = writer.private_prompts(None, [_context('one')])
    assert _decode(ids[1:]) == 'one\n' and len(writer.public_prompt(None)) == 1


@pytest.mark.parametrize('placeholder', ['label.topic', 'label_name.topic'])
def test_an_attribute_that_is_not_declared_is_refused(placeholder: str) -> None:
    template = prompt_templates.PromptTemplate(
        private='{examples}', example='{text}', public=f'A {{{placeholder}}} {{label.mood}}.'
    )
    with pytest.raises(ValueError, match=rf"got placeholders=\['{placeholder}'\], .*'mood'\]\. Declare them"):
        _of_attributes(template=template)
    with pytest.raises(ValueError, match=r'attributes=\[\]\. Declare them with --attributes'):
        _writer('', template=template)


# ------------------------------------------------------------------ template files

FILE = """
private = '''
<start_of_turn>user
{examples}
{"json": {0}} of {label}<end_of_turn>
'''
public = 'A {text_names} with {braces} of {label}\\n'
example = '- {text}'
separator = '; '
response_prefix = '* '
stop = ['```', '"']
"""


def _write(folder: pathlib.Path, text: str) -> str:
    path = folder / 'template.toml'
    path.write_text(text, encoding='utf-8')
    return str(path)


def test_a_template_file_is_read_as_it_stands(tmp_path: pathlib.Path) -> None:
    template = prompt_templates.read_template(_write(tmp_path, FILE))
    assert template.stop == ('```', '"') and template.separator == '; '
    writer = _writer('', template=template)
    (ids,) = writer.private_prompts('sports', [_context('one {text}', '{0} two')])
    expected = '<start_of_turn>user\n- one {text}; - {0} two\n{"json": {0}} of Sports<end_of_turn>\n* '
    assert _decode(ids[1:]) == expected
    assert _decode(writer.public_prompt('sports')[1:]) == 'A {text_names} with {braces} of Sports\\n* '
