"""The script of the report's page, run by Node.js with a stand-in for the document."""

import json
import re
import shutil
import subprocess
from pathlib import Path

from hpccoll import render

SCRIPT = Path(render.__file__).parent / "templates" / "page.js"

DOCUMENT = """
const spec = { usermeta: { layouts: [{ columns: 1, fixed: 0, room: 0 }], most: 500, text: 0, label: 100 },
               config: { legend: {} }, layer: [] };
const head = { cellIndex: 1, dataset: { size: "8 B" } };
const table = { tHead: { rows: [{ cells: [head] }] }, parentNode: {}, classList: { toggle() {} }, rows: [],
                tBodies: [{ append() {}, rows: [] }], dataset: { setting: "2 ranks" } };
const times = { open: false, scrollIntoView() {}, querySelectorAll: (what) => (what === "table" ? [table] : []),
                querySelector: () => ({ addEventListener() {} }) };
const chart = { dataset: { spec: "spec" }, scrollWidth: 1, clientWidth: 1, querySelectorAll: () => [],
                closest: (what) => (what === "figure" ? { querySelector: () => times } : null) };
let clicked;
globalThis.matchMedia = () => ({ matches: false, addEventListener() {} });
globalThis.addEventListener = () => {};
globalThis.vegaEmbed = async () => ({ view: { addEventListener: (_, then) => { clicked = then; } } });
globalThis.document = {
  getElementById: () => ({ textContent: JSON.stringify(spec) }), querySelector: () => ({ clientWidth: 1000 }),
  querySelectorAll: (what) => ({ ".chart": [chart], ".times": [times] })[what] ?? [],
};
"""

CLICKS = """
const opened = ITEMS.map((item) => { times.open = false; clicked({}, item); return times.open; });
console.log(JSON.stringify(opened));
"""


def test_only_a_cell_or_a_size_of_the_map_opens_its_table(require):
    node = shutil.which("node")
    require(node, "there is no Node.js")
    items = {
        "a cell": ({"datum": {"size": "8 B", "on": "2 ranks"}}, True),
        "the label of a size": ({"datum": {"value": "8 B"}}, True),
        "nothing": (None, False),
        "the frame of the map": ({"datum": {}}, False),
        "the label of a column": ({"datum": {"value": "2"}}, False),
    }
    clicks = CLICKS.replace("ITEMS", json.dumps([item for item, _ in items.values()]))
    script = DOCUMENT + re.sub(r"\{\{.*?\}\}", "{}", SCRIPT.read_text(encoding="utf-8")) + clicks
    ended = subprocess.run(
        [node, "--input-type=module", "-"], input=script, capture_output=True, text=True, check=False
    )
    assert ended.stderr == ""
    assert dict(zip(items, json.loads(ended.stdout), strict=True)) == {
        name: opens for name, (_, opens) in items.items()
    }
