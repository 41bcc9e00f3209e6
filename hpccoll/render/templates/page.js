// Charts fit the width of the page: a narrow page has fewer panels in a row.
const AXIS = 76, GAP = 40, LEAST = 180;
const dark = matchMedia("(prefers-color-scheme: dark)");
const DARK = {{ colours.DARK | tojson }};

function fitted(text, room) {
  if (dark.matches) text = text.replace(/#[0-9a-f]{6}/g, (colour) => DARK[colour] ?? colour);
  const spec = JSON.parse(text);
  delete spec.title;  // the page has its own
  const panel = spec.facet ? spec.spec : spec;
  let columns = spec.columns ?? 1;
  const share = () => Math.floor((room - AXIS - GAP * (columns - 1)) / columns);
  while (columns > 1 && share() < LEAST) columns = Math.ceil(columns / 2);
  if (spec.facet) spec.columns = columns;
  if (spec.facet && columns === 1) spec.resolve = { axis: { x: "independent" } };  // each panel has its own labels
  panel.width = Math.min(share(), Math.max(2 * panel.width, 420));
  spec.padding = 0;
  Object.assign(spec.config.legend, { columns: Math.max(1, Math.floor(room / spec.usermeta.label)) });
  return spec;
}

// Charts have the width of the header, because hidden elements have none. Wide labels are detected after drawing.
const drawn = new Map();
async function show(chart, room) {
  const text = document.getElementById(chart.dataset.spec).textContent;
  await vegaEmbed(chart, fitted(text, room), { actions: false, renderer: "svg" });
}
async function draw(charts) {
  const width = document.querySelector("header").clientWidth;
  for (const chart of charts) {
    if (drawn.get(chart) !== width) {
      drawn.set(chart, width);
      await show(chart, width);
    }
    const over = chart.scrollWidth - chart.clientWidth;  // labels are wider than AXIS
    if (over > 0) await show(chart, width - over);
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
const seen = () => draw(all.filter((chart) => !chart.closest(".tab:not(.shown)")));
async function rest() {
  for (const chart of all) {
    if (drawn.has(chart)) continue;
    await idle();
    if (!drawn.has(chart)) await draw([chart]);
  }
}
addEventListener("resize", seen);
addEventListener("tab", seen);
dark.addEventListener("change", async () => { drawn.clear(); await seen(); await rest(); });
await seen();
await rest();
