"""What an --input names, and that no part of a password stays in it."""

import pytest

from transforms import places


@pytest.mark.parametrize(
    ('given', 'without', 'password'),
    [
        ('postgresql://u:geheim@h:5432/d', 'postgresql://u@h:5432/d', 'geheim'),
        ('postgresql+psycopg://u:geh%40im@h/d?a=b', 'postgresql+psycopg://u@h/d?a=b', 'geh@im'),
        ('postgres://:geheim@/d?host=/tmp', 'postgres://@/d?host=/tmp', 'geheim'),
        (
            'postgresql://u@h/d?password=ge%2Bheim&sslmode=require',
            'postgresql://u@h/d?sslmode=require',
            'ge+heim',
        ),
        ('postgresql://u@h/d?PASSWORD=geheim', 'postgresql://u@h/d', 'geheim'),
        # Not quoted as they should be.
        ('postgresql://u:ge@he/im@h/d', 'postgresql://u@h/d', 'ge@he/im'),
        ('postgresql://u:ge?heim@h/d', 'postgresql://u@h/d', 'ge?heim'),
        ('mysql://u:geheim@h/d', 'mysql://u@h/d', 'geheim'),
        # None of these is a password.
        ('postgresql://u@h:5432/d', 'postgresql://u@h:5432/d', None),
        ('postgresql://h:5432/d?user=u@h', 'postgresql://h:5432/d?user=u@h', None),
        ('postgresql://u@h/d', 'postgresql://u@h/d', None),
        ('sqlite:///a:b@c.db', 'sqlite:///a:b@c.db', None),
        ('gs://bucket/a:b@c.csv', 'gs://bucket/a:b@c.csv', None),
        ('notes:1@2.csv', 'notes:1@2.csv', None),
    ],
)
def test_a_password_is_taken_out_of_the_url(given: str, without: str, password: str | None) -> None:
    assert places.take_password(given) == (without, password)
    assert places.has_password(given) == (password is not None)
    assert not places.has_password(without)


def test_the_url_of_a_database_is_one_pattern() -> None:
    assert places.split_patterns(' postgresql://a,b/d ') == ['postgresql://a,b/d']
    assert places.split_patterns('a.csv, gs://b/c.csv,') == ['a.csv', 'gs://b/c.csv']
