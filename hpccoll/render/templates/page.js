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
const headerWidth = () => document.querySelector("header").clientWidth;
const wide = matchMedia("(min-width: 62rem)");
function widthOf(chart) {  // two charts beside each other share the width as page.css says
  const beside = wide.matches && chart.closest(".beside[data-charts='2']");
  if (!beside) return headerWidth();
  const room = headerWidth() - 24, isFirst = beside.firstElementChild.contains(chart);
  return Math.floor(room * (isFirst ? 0.6 : 0.4));
}
async function draw(charts) {
  for (const chart of charts) {
    const width = widthOf(chart);
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

// Numbers are compared as numbers, and an empty cell comes first.
const compare = (a, b) => (isNaN(a - b) || a === "" || b === "" ? String(a).localeCompare(String(b)) : a - b);

function sort(head) {
  const table = head.closest("table"), body = table.tBodies[0], column = head.cellIndex;
  const down = head.getAttribute("aria-sort") === "ascending";
  for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  if (paged.has(table)) {
    paged.get(table).sort(column, down);
    return;
  }
  const key = (row) => { const cell = row.cells[column]; return cell.dataset.key ?? cell.textContent; };
  const rows = [...body.rows].sort((a, b) => (down ? -1 : 1) * compare(key(a), key(b)));
  body.append(...rows);
}

// A large table has its cells in JSON, each different cell of a column once; a page of its rows is drawn at a time.
class PagedTable {
  constructor(pager) {
    const text = pager.parentNode.querySelector(".all-rows").textContent;
    const { page, statuses, columns } = JSON.parse(text);
    Object.assign(this, { pager, page, statuses, columns, table: pager.parentNode.querySelector(".sortable") });
    this.order = statuses.map((_, row) => row);
    this.shown = this.order;
    this.first = 0;
    const search = pager.querySelector("input");
    search.addEventListener("input", () => this.search(search.value));
    for (const button of pager.querySelectorAll("button")) {
      button.addEventListener("click", () => this.turn(Number(button.dataset.by)));
    }
    pager.hidden = false;
    this.count();
  }

  turn(pages) {
    this.first = Math.min(Math.max(0, this.first + pages * this.page), Math.max(0, this.shown.length - 1));
    this.first -= this.first % this.page;
    this.draw();
  }

  // A row is found if each word is in one of its cells.
  search(text) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    const hits = words.map((word) => this.columns.map(({ texts }) => texts.map((cell) => cell.toLowerCase().includes(word))));
    const has = (row, of) => this.columns.some(({ rows }, i) => of[i][rows[row]]);
    this.found = words.length ? (row) => hits.every((of) => has(row, of)) : null;
    this.filter();
  }

  sort(column, down) {
    const { texts, keys, rows } = this.columns[column];
    const key = (row) => (keys ?? texts)[rows[row]];
    this.order.sort((a, b) => (down ? -1 : 1) * compare(key(a), key(b)));
    this.filter();
  }

  filter() {
    this.shown = this.found ? this.order.filter(this.found) : this.order;
    this.first = 0;
    this.draw();
  }

  draw() {
    const rows = this.shown.slice(this.first, this.first + this.page).map((row) => this.row(row));
    this.table.tBodies[0].replaceChildren(...rows);
    this.table.parentNode.scrollTop = 0;
    this.count();
  }

  row(number) {
    const row = document.createElement("tr");
    row.className = this.statuses[number];
    for (const { texts, number: isNumber, rows } of this.columns) {
      const cell = row.insertCell(), text = texts[rows[number]];
      cell.textContent = text;
      if (isNumber || text.length > 40) cell.className = isNumber ? "number" : "words";
    }
    return row;
  }

  count() {
    const { first, page, shown, statuses } = this, last = Math.min(first + page, shown.length);
    const of = shown.length < statuses.length ? `${shown.length} found of ${statuses.length}` : statuses.length;
    this.pager.querySelector(".at").textContent = shown.length ? `rows ${first + 1} to ${last} of ${of}` : `no row of ${of}`;
    const [before, after] = this.pager.querySelectorAll("button");
    before.disabled = first === 0;
    after.disabled = last >= shown.length;
  }
}

const paged = new Map();
for (const pager of document.querySelectorAll(".pager")) {
  const table = new PagedTable(pager);
  paged.set(table.table, table);
}

for (const head of document.querySelectorAll(".sortable th")) {
  head.addEventListener("click", () => sort(head));
  head.addEventListener("keydown", (event) => { if (event.key === "Enter") sort(head); });
}
// Charts near the window are drawn at once, the others when the browser is idle, so that all of them can be printed.
const all = [...document.querySelectorAll(".chart")];
const idle = () => new Promise(globalThis.requestIdleCallback ?? ((then) => setTimeout(then, 50)));
const folded = (chart) => chart.closest("details:not([open])");
function isNear(chart) {
  const { top, bottom } = chart.getBoundingClientRect();
  return bottom > -innerHeight && top < 2 * innerHeight;
}
const seen = () => draw(all.filter((chart) => !folded(chart) && !chart.closest(".tab:not(.shown)") && isNear(chart)));
async function rest() {
  for (const chart of all) {
    if (folded(chart) || drawn.get(chart) === headerWidth()) continue;
    await idle();
    if (drawn.get(chart) !== headerWidth()) await draw([chart]);
  }
}
let settled;
addEventListener("resize", () => {
  seen();
  clearTimeout(settled);
  settled = setTimeout(rest, 300);
});
addEventListener("scroll", seen, { passive: true });
addEventListener("tab", seen);
for (const fold of document.querySelectorAll("details:has(.chart)")) fold.addEventListener("toggle", seen);
dark.addEventListener("change", async () => { drawn.clear(); await seen(); await rest(); });
await seen();
rest();
