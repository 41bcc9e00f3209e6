"""Golden pages: the text of each renderer, compared with a file; HPCCOLL_WRITE_GOLDEN=1 writes the files anew."""

import os
from pathlib import Path

FOLDER = Path(__file__).parent / "render" / "golden"


def assert_golden(name, text):
    """Compare a text, or its lines, with the golden page of a name."""
    text = text if isinstance(text, str) else "".join(f"{line}\n" for line in text)
    page = FOLDER / f"{name}.txt"
    if os.environ.get("HPCCOLL_WRITE_GOLDEN"):
        page.write_text(text)
    assert text.splitlines() == page.read_text().splitlines()
