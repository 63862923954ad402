"""Invented messages to a support desk and a clinic, to try the product: no real person, no real data.

`python -m launch.demo.records --output demo/records.jsonl` writes JSON lines with the keys `id`, `customer` (the
id of a user, who has several records), `text` and `label`. The messages have many names, addresses and order
numbers, so that a reader can look for them in a synthetic corpus and find none.
"""

import json
import pathlib
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

import typer

# The demo data are public, and the same everywhere. Privacy noise never has a seed.
SEED = 20_240_607
LABELS = ('Billing', 'Delivery', 'Appointment', 'Technical')
MIN_WORDS, MAX_WORDS = 10, 60
_RECORDS_PER_CUSTOMER = 4

_GIVEN = (
    'Amara', 'Benno', 'Celia', 'Dorian', 'Elske', 'Farid', 'Greta', 'Hamid', 'Ines', 'Jorun', 'Keiko', 'Lorcan',
    'Mirela', 'Nuno', 'Oksana', 'Priya', 'Quentin', 'Rosalba', 'Soren', 'Tamsin', 'Ulla', 'Viktor', 'Wanjiru', 'Yusuf',
)  # fmt: skip
_FAMILY = (
    'Abernethy', 'Brandvold', 'Castellan', 'Dunmore', 'Eklund', 'Farrow', 'Grimaldi', 'Hollis', 'Ivanko', 'Jessop',
    'Kowalczyk', 'Lindqvist', 'Marchetti', 'Njoroge', 'Ostrander', 'Pellegrin', 'Quillfeather', 'Rasmus', 'Sorabji',
    'Thistlewood', 'Umarov', 'Vanterpool', 'Whitlock', 'Zielinski',
)  # fmt: skip

# Slots in braces. Names and numbers are drawn by `_slots`; these lists are words alone.
_WORDS: Mapping[str, Sequence[str]] = {
    'weekday': ('Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'),
    'part': ('morning', 'afternoon', 'evening'),
    'month': ('January', 'February', 'March', 'April', 'June', 'September', 'October', 'November'),
    'street': ('Larch Lane', 'Mill Road', 'Harbour Street', 'Station Road', 'Quarry Hill', 'Elm Terrace'),
    'city': ('Ashbourne', 'Brackwell', 'Corvenport', 'Dunhaven', 'Eastmere', 'Fallowfield'),
    'plan': ('basic plan', 'family plan', 'yearly plan', 'student plan', 'business plan'),
    'card': ('credit card', 'debit card', 'bank account', 'gift card'),
    'goods': ('desk lamp', 'coffee grinder', 'winter coat', 'pair of boots', 'bookshelf', 'kettle', 'child seat'),
    'carrier': ('courier', 'driver', 'parcel service', 'post office', 'depot'),
    'doctor': ('Dr. Harrow', 'Dr. Okafor', 'Dr. Lindgren', 'Dr. Castile', 'Nurse Pell'),
    'complaint': (
        'a sore throat', 'back pain', 'a rash on my arm', 'headaches', 'a bad cough', 'a sprained ankle',
        'trouble sleeping', 'a tooth that hurts',
    ),
    'visit': ('check-up', 'blood test', 'vaccination', 'follow-up visit', 'physiotherapy session', 'eye test'),
    'device': ('router', 'tablet', 'printer', 'phone', 'smart watch', 'laptop', 'thermostat'),
    'fault': (
        'keeps restarting', 'shows a blank screen', 'does not connect to the network', 'is stuck on the update page',
        'loses its settings every night', 'gets very hot', 'will not turn on',
    ),
    'app': ('the app', 'the website', 'my account page', 'the sign-in page'),
    'tried': (
        'I have restarted it twice', 'I reset it as the manual says', 'I changed the cable', 'I installed it again',
        'I asked a neighbour for help',
    ),
}  # fmt: skip

_OPENINGS = (
    'Hello, this is {name}.',
    'Good {part}, my name is {name} and my customer number is {customer}.',
    'Hi there!',
    'Good day to the whole team.',
    'Hello, {name} here again.',
    '',
)

_BODIES: Mapping[str, Sequence[str]] = {
    'Billing': (
        'I was charged {amount} dollars twice on my {card} for invoice {order}, and I would like one of them back.',
        'The invoice {order} says {amount} dollars, but the {plan} should cost less than that since {month}.',
        'I cancelled the {plan} in {month} and you still took {amount} dollars from my {card} last {weekday}.',
        'Could you please send the receipt for order {order} over {amount} dollars to my new address, {email}?',
        'My refund of {amount} dollars for {order} was promised for {weekday} and has not reached my {card} yet.',
        'Why did the price of the {plan} go up by {amount} dollars without any letter or message to me?',
        'I paid invoice {order} with my {card} on {weekday}, yet I got a reminder with a late fee this {part}.',
    ),
    'Delivery': (
        'My {goods} from order {order} was due last {weekday} and the {carrier} says it is still on its way.',
        'The parcel with the {goods} arrived at {number} {street} in {city}, but the box was open and half empty.',
        'Please send order {order} to {number} {street}, {city}, since nobody is at home in the {part}.',
        'The {carrier} left my {goods} in the rain in front of the wrong house on {street}, and it is ruined.',
        'Tracking for {order} has not changed since {weekday}. Can you ask the {carrier} where my {goods} is?',
        'You sent me a {goods} that I never ordered. When can somebody collect it from {street} in {city}?',
        'I waited all {part} for the {carrier} and nobody came, though the page says that {order} was handed over.',
    ),
    'Appointment': (
        'I need to move my {visit} with {doctor} from {weekday} {part} to any day in {month}, if you have room.',
        'I have had {complaint} for {number} days now. Is there a free appointment with {doctor} this {weekday}?',
        'Could you confirm the {visit} for my daughter on {weekday} at {hour} with {doctor}?',
        'I have to cancel the {visit} on {weekday} because of {complaint}. Please call me at {phone} for a new date.',
        'Do I have to come without breakfast to the {visit} at {hour} on {weekday}, and how long does it take?',
        '{doctor} asked me to book a {visit} within {number} weeks. Which days in {month} are still free?',
        'I missed the call about my {visit}. I still have {complaint}, so please ring {phone} in the {part}.',
    ),
    'Technical': (
        'My {device} {fault} since the last update. {tried}, and nothing changed at all.',
        'I cannot sign in to {app} with {email}, and the link for a new password never arrives.',
        'Since {weekday} {part} the {device} {fault}. {tried}. The number on the back is {order}.',
        'When I open {app}, it says error {number} and closes. It worked well until {weekday}.',
        'How do I connect the {device} to a second {device2}? The manual does not say, and {app} only shows an error.',
        'The {device} that you replaced in {month} {fault} again. {tried} before I wrote to you.',
        '{app} shows the data of another person after I sign in with {email}. Please look at this soon.',
    ),
}

_CLOSINGS = (
    'You can reach me at {phone}.',
    'Please write to {email}.',
    'Thank you, {name}.',
    'My order number is {order}, in case that helps you to find it.',
    'I have written about this twice already and would be glad about an answer before {weekday}.',
    'Please call in the {part}, {phone}, and ask for {given}.',
    'Many thanks and kind regards.',
    '',
)


def demo_records(records: int, seed: int = SEED) -> Iterator[dict[str, str]]:
    """Invented records, the same for the same arguments: rows with `id`, `customer`, `text` and `label`."""
    source = random.Random(seed)
    people = [
        (f'C{number:05d}', source.choice(_GIVEN), source.choice(_FAMILY))
        for number in range(max(1, records // _RECORDS_PER_CUSTOMER))
    ]
    for number in range(records):
        customer, given_name, family = source.choice(people)
        label = source.choice(LABELS)
        yield {
            'id': f'R{number:06d}',
            'customer': customer,
            'text': _message(source, label, customer, given_name, family),
            'label': label,
        }


def _message(source: random.Random, label: str, customer: str, given_name: str, family: str) -> str:
    slots = _slots(source, customer, given_name, family)
    while True:
        parts = (source.choice(_OPENINGS), source.choice(_BODIES[label]), source.choice(_CLOSINGS))
        text = ' '.join(part.format_map(slots) for part in parts if part)
        if MIN_WORDS <= len(text.split()) <= MAX_WORDS:
            # A slot such as {app} may begin a sentence.
            return re.sub(r'(^|[.?!] )([a-z])', lambda match: match[1] + match[2].upper(), text)


def _slots(source: random.Random, customer: str, given_name: str, family: str) -> dict[str, str]:
    """One value for every slot. The mail domain and the phone numbers are reserved for fiction."""
    words = {name: source.choice(values) for name, values in _WORDS.items()}
    return words | {
        'name': f'{given_name} {family}',
        'given': given_name,
        'customer': customer,
        'email': f'{given_name}.{family}{source.randrange(10, 100)}@example.org'.lower(),
        'phone': f'555-01{source.randrange(100):02d}',
        'order': f'{source.choice("ABKRX")}{source.choice("DHMTZ")}-{source.randrange(10_000, 100_000)}',
        'amount': f'{source.randrange(5, 400)}.{source.randrange(100):02d}',
        'number': str(source.randrange(2, 90)),
        'hour': f'{source.randrange(8, 18)}:{source.choice(("00", "15", "30", "45"))}',
        'device2': source.choice([device for device in _WORDS['device'] if device != words['device']]),
    }


def main(
    output: Annotated[
        pathlib.Path, typer.Option(help='JSON lines file to write; a file that is there is replaced.')
    ],
    records: Annotated[int, typer.Option(min=1, help='How many records.')] = 2_000,
) -> None:
    """Write invented records for the demo."""
    rows = [json.dumps(row, ensure_ascii=False) + '\n' for row in demo_records(records)]
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(''.join(rows), encoding='utf-8')
    print(f'Wrote {records:,} invented records with the labels {", ".join(LABELS)} to {output}.')


if __name__ == '__main__':
    typer.run(main)
