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
                getBoundingClientRect: () => ({ top: 0, bottom: 100 }),
                closest: (what) => (what === "figure" ? { querySelector: () => times } : null) };
let clicked;
globalThis.matchMedia = () => ({ matches: false, addEventListener() {} });
globalThis.addEventListener = () => {};
globalThis.innerHeight = 800;
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


TABLE = {
    "page": 2,
    "statuses": ["ok", "ok", "wrong", "ok", "ok"],
    "columns": [
        {"texts": ["ring", "native"], "number": False, "rows": [0, 1, 0, 1, 0]},
        {"texts": ["9 B", "1 KiB"], "keys": [9, 1024], "number": True, "rows": [1, 0, 0, 1, 1]},
        {"texts": ["5.00", "40.00", "", "7.00", "6.00"], "keys": [5, 40, "", 7, 6], "number": True,
         "rows": [0, 1, 2, 3, 4]},
    ],
}  # fmt: skip

PAGED = """
const body = { rows: [], replaceChildren(...rows) { this.rows = rows; } };
const large = { tBodies: [body], parentNode: {} };
const box = { addEventListener: (_, then) => { box.search = (text) => { box.value = text; then(); }; } };
const buttons = [-1, 1].map((by) => ({ dataset: { by }, addEventListener(_, then) { this.click = then; } }));
const at = {};
const pager = { hidden: true, querySelector: (what) => (what === "input" ? box : at), querySelectorAll: () => buttons };
pager.parentNode = { querySelector: (what) => (what === ".all-rows" ? { textContent: JSON.stringify(TABLE) } : large) };
const heads = [0, 1, 2].map((cellIndex) => ({
  cellIndex, attributes: {}, closest: () => large,
  getAttribute(name) { return this.attributes[name]; }, setAttribute(name, value) { this.attributes[name] = value; },
  removeAttribute(name) { delete this.attributes[name]; },
  addEventListener(event, then) { if (event === "click") this.click = then; },
}));
for (const head of heads) head.parentNode = { cells: heads };
document.createElement = () => ({ cells: [], insertCell() { const cell = {}; this.cells.push(cell); return cell; } });
const others = document.querySelectorAll;
document.querySelectorAll = (what) => ({ ".pager": [pager], ".sortable th": heads })[what] ?? others(what);
"""

TURNS = """
const seenRows = () => [at.textContent, ...body.rows.map((row) => row.cells.map((cell) => cell.textContent).join(" "))];
const pages = [];
buttons[1].click(); buttons[1].click(); pages.push(seenRows());
heads[2].click(); pages.push(seenRows());
heads[2].click(); pages.push(seenRows());
box.search("RING kib"); pages.push(seenRows());
box.search("nowhere"); pages.push(seenRows());
console.log(JSON.stringify(pages));
"""


def run(script, require):
    """Return what the script of the page prints as JSON, run with more script before and after it."""
    node = shutil.which("node")
    require(node, "there is no Node.js")
    before, after = script
    page = re.sub(r"\{\{.*?\}\}", "{}", SCRIPT.read_text(encoding="utf-8"))
    ended = subprocess.run(
        [node, "--input-type=module", "-"],
        input=before + page + after,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.stderr == ""
    return json.loads(ended.stdout)


def test_pages_search_and_order_of_a_large_table_are_of_all_its_rows(require):
    paged = PAGED.replace("TABLE", json.dumps(TABLE))
    last, ascending, descending, found, nothing = run((DOCUMENT + paged, TURNS), require)
    assert last == ["rows 5 to 5 of 5", "ring 1 KiB 6.00"]
    assert ascending == ["rows 1 to 2 of 5", "ring 9 B ", "ring 1 KiB 5.00"]
    assert descending == ["rows 1 to 2 of 5", "native 9 B 40.00", "native 1 KiB 7.00"]
    assert found == ["rows 1 to 2 of 2 found of 5", "ring 1 KiB 6.00", "ring 1 KiB 5.00"]
    assert nothing == ["no row of 0 found of 5"]


def test_only_a_cell_or_a_size_of_the_map_opens_its_table(require):
    items = {
        "a cell": ({"datum": {"size": "8 B", "on": "2 ranks"}}, True),
        "the label of a size": ({"datum": {"value": "8 B"}}, True),
        "nothing": (None, False),
        "the frame of the map": ({"datum": {}}, False),
        "the label of a column": ({"datum": {"value": "2"}}, False),
    }
    clicks = CLICKS.replace("ITEMS", json.dumps([item for item, _ in items.values()]))
    opened = run((DOCUMENT, clicks), require)
    assert dict(zip(items, opened, strict=True)) == {
        name: opens for name, (_, opens) in items.items()
    }
