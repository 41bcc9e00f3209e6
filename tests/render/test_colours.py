"""The colours of series: seen on white and on near-black."""

import pytest

from hpccoll.analysis.chart_groups import FAMILIES, LegendEntry
from hpccoll.render.colours import DARK, PAPER, entry_colour


def luminance(colour):
    """Return the relative luminance of WCAG 2.1."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize(("paper", "least"), [(PAPER, 2.0), (DARK[PAPER], 2.5)])
def test_all_members_of_the_families_have_contrast_to_the_page(paper, least):
    entries = [
        LegendEntry(number, member)
        for number, names in enumerate(FAMILIES)
        for member in range(len(names))
    ]
    pairs = {entry: sorted((luminance(paper), luminance(entry_colour(entry)))) for entry in entries}
    assert {
        entry for entry, (dark, light) in pairs.items() if (light + 0.05) / (dark + 0.05) < least
    } == set()
