"""Cells of a notebook hold text that is escaped, in lines of one width."""

import html

from pipeline.pages import notebook, plan_terminal


def test_what_a_terminal_shows_is_escaped_and_has_no_markup() -> None:
    rows = [('Name', '<b>[red]5[/red]</b>')]
    shown = notebook.shown(lambda console: plan_terminal.render(rows, ['Look out.'], console))
    assert '&lt;b&gt;[red]5[/red]&lt;/b&gt;' in shown and 'Look out.' in shown
    assert shown.count('<') == 2 and '\x1b' not in shown


def test_a_page_stands_in_a_frame_in_which_nothing_runs() -> None:
    page = '<p title="a">&amp;</p><script>1</script>'
    framed = notebook.framed(page)
    assert framed.startswith('<iframe sandbox srcdoc="') and '<script' not in framed
    assert page in html.unescape(framed)
