// Charts fit the width of the page as their specification says: a narrow page has fewer panels in a row.
const dark = matchMedia("(prefers-color-scheme: dark)");
const DARK = {{ colours.DARK | tojson }};

function fitted(text, room) {  // as in render/chart_layout.py
  if (dark.matches) text = text.replace(/#[0-9a-f]{6}/g, (colour) => DARK[colour] ?? colour);
  const spec = JSON.parse(text), meta = spec.usermeta, panel = spec.spec ?? spec;
  const layout = meta.layouts.find((each) => room >= each.room);
  panel.width = Math.min(meta.most, Math.floor((room - layout.fixed) / layout.columns));
  if (spec.facet) {
    spec.columns = layout.columns;
    spec.config.header.labelLimit = panel.width;
    if (layout.columns === 1) spec.resolve = { axis: { x: "independent" } };  // each panel has its own labels
  }
  if (panel.width < meta.text) panel.layer = panel.layer.filter((layer) => layer.mark.type !== "text");
  spec.config.legend.columns = Math.max(1, Math.floor(room / meta.label));
  delete spec.title;  // the page has its own
  spec.padding = { bottom: 6 };  // the letters of the last title reach below its box
  return spec;
}

const MOST_OVER = 60;

// Charts have the width of the header, because hidden elements have none. Wide labels are detected after drawing.
const drawn = new Map();
async function show(chart, room) {
  const text = document.getElementById(chart.dataset.spec).textContent;
  const { view } = await vegaEmbed(chart, fitted(text, room), { actions: false, renderer: "svg" });
  const times = chart.closest("figure").querySelector(".times");
  if (!times) return;
  // Cells have the size and the setting, and labels of the axis the size. Anything else has neither.
  const chosen = ({ size, value, on }) => { if (size ?? value) pick(times, size ?? value, on); };
  view.addEventListener("click", (_, item) => chosen(item?.datum ?? {}));
  for (const part of chart.querySelectorAll(".mark-rect.role-mark path, .role-axis-label text")) {
    const datum = part.__data__?.datum;
    if (!times.querySelector(`th[data-size="${datum?.size ?? datum?.value}"]`)) continue;
    part.tabIndex = 0;
    part.addEventListener("keydown", (event) => { if (event.key === "Enter") chosen(datum); });
  }
}
async function draw(charts) {
  const width = document.querySelector("header").clientWidth;
  for (const chart of charts) {
    if (drawn.get(chart) !== width) {
      drawn.set(chart, width);
      await show(chart, width);
    }
    const over = chart.scrollWidth - chart.clientWidth;  // labels are wider than their room
    if (over > 0) await show(chart, width - Math.min(over, MOST_OVER));
  }
}

// The tables of a map show one size, the fastest choice first, or all sizes without a size.
function pick(times, size, setting) {
  const tables = [...times.querySelectorAll("table")];
  if (size !== undefined && !tables.some((table) => headOf(table, size))) return;
  for (const table of tables) {
    const head = size === undefined ? null : headOf(table, size), at = head?.cellIndex;
    table.parentNode.hidden = size !== undefined && (!head || (setting && table.dataset.setting !== setting));
    table.classList.toggle("one", Boolean(head));
    for (const row of table.rows) [...row.cells].forEach((cell, i) => cell.classList.toggle("on", i === at));
    const key = (row) => Number(row.cells[at].dataset.key ?? Infinity);
    if (head) table.tBodies[0].append(...[...table.tBodies[0].rows].sort((a, b) => key(a) - key(b)));
  }
  times.querySelector("button").hidden = size === undefined;
  times.open = true;
  if (size !== undefined) times.scrollIntoView({ block: "nearest" });
}
const headOf = (table, size) => [...table.tHead.rows[0].cells].find((cell) => cell.dataset.size === size);
for (const times of document.querySelectorAll(".times")) {
  times.querySelector("button").addEventListener("click", () => pick(times));
  for (const head of times.querySelectorAll("th[data-size]")) {
    const only = () => pick(times, head.dataset.size, head.closest("table").dataset.setting);
    head.addEventListener("click", only);
    head.addEventListener("keydown", (event) => { if (event.key === "Enter") only(); });
  }
}

function sort(head) {
  const body = head.closest("table").tBodies[0], column = head.cellIndex;
  const down = head.getAttribute("aria-sort") === "ascending";
  const key = (row) => { const cell = row.cells[column]; return cell.dataset.key ?? cell.textContent; };
  const order = (a, b) => (isNaN(a - b) || a === "" || b === "" ? a.localeCompare(b) : a - b);
  const rows = [...body.rows].sort((a, b) => (down ? order(key(b), key(a)) : order(key(a), key(b))));
  for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  body.append(...rows);
}

for (const head of document.querySelectorAll(".sortable th")) {
  head.addEventListener("click", () => sort(head));
  head.addEventListener("keydown", (event) => { if (event.key === "Enter") sort(head); });
}
// Visible charts are drawn at once, the others when the browser is idle, so that all of them can be printed.
const all = [...document.querySelectorAll(".chart")];
const idle = () => new Promise(globalThis.requestIdleCallback ?? ((then) => setTimeout(then, 50)));
const folded = (chart) => chart.closest("details:not([open])");
const seen = () => draw(all.filter((chart) => !folded(chart) && !chart.closest(".tab:not(.shown)")));
async function rest() {
  for (const chart of all) {
    if (drawn.has(chart) || folded(chart)) continue;
    await idle();
    if (!drawn.has(chart)) await draw([chart]);
  }
}
addEventListener("resize", seen);
addEventListener("tab", seen);
for (const fold of document.querySelectorAll("details:has(.chart)")) fold.addEventListener("toggle", seen);
dark.addEventListener("change", async () => { drawn.clear(); await seen(); await rest(); });
await seen();
await rest();
