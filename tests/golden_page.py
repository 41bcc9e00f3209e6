"""Golden pages: a text, such as that of a renderer, compared with a file; HPCCOLL_WRITE_GOLDEN=1 writes it anew."""

import os
from pathlib import Path

FOLDER = Path(__file__).parent / "render" / "golden"


def assert_golden(name, text, folder=FOLDER):
    """Compare a text, or its lines, with the golden page of a name."""
    text = text if isinstance(text, str) else "".join(f"{line}\n" for line in text)
    page = folder / f"{name}.txt"
    if os.environ.get("HPCCOLL_WRITE_GOLDEN"):
        page.write_text(text)
    assert text.splitlines() == page.read_text().splitlines(), (
        f"{page} differs: HPCCOLL_WRITE_GOLDEN=1 writes it anew"
    )
