// What all tabs of the page share, and its tables. tabs.js follows in the same scope.

const page = JSON.parse(document.getElementById("data").textContent);
// Plotly's symbols, for legends: paths in a box from -5 to 5.
const SHAPES = {
  "circle": "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0", "square": "M-3.6,-3.6h7.2v7.2h-7.2z",
  "triangle-up": "M0,-4.5L4.4,3.4H-4.4z", "triangle-down": "M0,4.5L4.4,-3.4H-4.4z",
  "diamond": "M0,-5L5,0L0,5L-5,0z", "cross": "M-1.6,-4.6h3.2v3h3v3.2h-3v3h-3.2v-3h-3v-3.2h3z",
  "star": "M0,-5L1.2,-1.6L4.8,-1.5L1.9,0.6L2.9,4L0,2L-2.9,4L-1.9,0.6L-4.8,-1.5L-1.2,-1.6z",
  "x": "M-4,-2.2L-2.2,-4L0,-1.8L2.2,-4L4,-2.2L1.8,0L4,2.2L2.2,4L0,1.8L-2.2,4L-4,2.2L-1.8,0z",
};
const POWERS = { tickvals: range(41).map((i) => 10 ** (i - 30)), ticktext: range(41).map((i) => "10" + superscript(i - 30)) };
const START = 0.5;  // where a logarithmic axis of rounds shows the start
const hiddenAlgorithms = new Set();

// --- small helpers -------------------------------------------------------------------------------

/** Make an element; text children are never parsed as HTML. */
function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "class") node.className = value;
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}

/** Escape a text, as Plotly parses some HTML. */
const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
function superscript(number) {
  return [...String(number)].map((letter) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(letter)]).join("");
}
function range(n) {
  return Array.from({ length: n }, (_, i) => i);
}
const isNumber = (value) => typeof value === "number";

/** Number of decimals for numbers of this size; four for those of the paper. */
function digitsFor(values) {
  const most = Math.max(0, ...values.filter(isNumber).map(Math.abs));
  if (most === 0) return 4;
  const size = Math.floor(Math.log10(most));
  return Math.min(8, Math.max(0, size >= 1 ? 5 - size : 3 - Math.min(size, -1)));
}
function fixed(value, digits = digitsFor([value])) {
  if (!isNumber(value)) return "–";
  const text = value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  return /[1-9]/.test(text) ? text.replace("-", "−") : text.replace("-", "");
}
function signed(value, digits) {
  if (!isNumber(value)) return "–";
  const text = fixed(value, digits);
  return value > 0 && /[1-9]/.test(text) ? "+" + text : text;
}
const whole = (value) => fixed(value, 0);
const count = (n, thing) => `${whole(n)} ${thing}${n === 1 ? "" : "s"}`;
const seconds = (value) => fixed(value, value >= 100 ? 0 : value >= 1 ? 1 : 3);

// --- colours -------------------------------------------------------------------------------------

const dark = matchMedia("(prefers-color-scheme: dark)");
let printing = false;

function theme() {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(`--${name}`).trim();
  const light = { page: "#ffffff", surface: "#ffffff", ink: "#000000", muted: "#444444", grid: "#dddddd", rule: "#bbbbbb" };
  return printing ? light : Object.fromEntries(Object.keys(light).map((name) => [name, colour(name)]));
}
const colourOf = (algorithm) => page.algorithms[algorithm].colour[dark.matches && !printing ? "dark" : "light"];
const symbolOf = (algorithm) => page.algorithms[algorithm].symbol;
const lineOf = (algorithm, width) => ({ color: colourOf(algorithm), dash: page.algorithms[algorithm].dash, width });
const titleOf = (algorithm) => page.algorithms[algorithm].title;
const isShown = (algorithm) => !hiddenAlgorithms.has(algorithm);

// --- figures -------------------------------------------------------------------------------------

function axis(title, more = {}) {
  const { ink, muted, grid, rule } = theme();
  return {
    title: { text: plain(title), font: { size: 12, color: muted }, standoff: 8 }, automargin: true,
    color: ink, gridcolor: grid, linecolor: rule, tickcolor: rule, showline: true, zeroline: false,
    ticks: "outside", ticklen: 4, tickfont: { size: 11, color: muted }, ...more,
  };
}

function draw(node, traces, layout) {
  const { ink, muted, surface } = theme();
  const family = getComputedStyle(document.body).fontFamily;
  const touch = matchMedia("(pointer: coarse)").matches;
  Plotly.react(node, traces, {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { family, size: 12, color: ink },
    margin: { l: 12, r: 12, t: 12, b: 12 }, showlegend: false, hovermode: "closest", autosize: true,
    // On a touch screen, a finger scrolls the page.
    dragmode: touch ? false : "zoom",
    hoverlabel: { bgcolor: surface, font: { family, size: 12, color: ink }, align: "left" },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: muted, activecolor: ink },
    ...layout,
  }, {
    responsive: true, displaylogo: false, displayModeBar: touch ? false : "hover",
    // Only buttons that work offline.
    modeBarButtons: [["toImage", "zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]],
    toImageButtonOptions: { format: "svg", filename: page.name },
  });
}

/** Return boxes for figures with these captions; all exist before one is drawn, as they share the width. */
function figures(body, captions) {
  while (body.querySelectorAll(".plot").length < captions.length) {
    body.append(el("figure", {}, el("figcaption"), el("div", { class: "plot", role: "group" })));
  }
  return captions.map((caption, index) => {
    const [title, box] = body.children[index].children;
    title.textContent = caption;
    box.setAttribute("aria-label", `Figure: ${caption}`);
    return box;
  });
}

function swatch(algorithm) {
  const colour = colourOf(algorithm), { dash, symbol } = page.algorithms[algorithm];
  const holder = el("span");
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  for (const [name, value] of [["width", 30], ["height", 12], ["viewBox", "-15 -6 30 12"], ["aria-hidden", "true"]]) {
    svg.setAttribute(name, value);
  }
  const line = document.createElementNS(svg.namespaceURI, "path");
  line.setAttribute("d", "M-14,0H14");
  line.setAttribute("stroke", colour);
  line.setAttribute("stroke-width", 2);
  line.setAttribute("stroke-dasharray", dash === "solid" ? "none" : dash);
  const shape = document.createElementNS(svg.namespaceURI, "path");
  shape.setAttribute("d", SHAPES[symbol]);
  shape.setAttribute("fill", colour);
  svg.append(line, shape);
  holder.append(svg);
  return holder;
}

function drawLegend(panel) {
  const box = panel.querySelector(".legend");
  const present = new Set(page.cells.map((cell) => cell.algorithm));
  box.replaceChildren(...[...present].sort((a, b) => a - b).map((algorithm) => el("button", {
    type: "button", "aria-pressed": String(isShown(algorithm)), title: "Show or hide",
    onclick: () => {
      if (isShown(algorithm)) hiddenAlgorithms.add(algorithm); else hiddenAlgorithms.delete(algorithm);
      redraw();
      box.children[[...present].sort((a, b) => a - b).indexOf(algorithm)].focus();
    },
  }, swatch(algorithm), titleOf(algorithm) + (page.algorithms[algorithm].pooled ? " (pooled)" : ""))));
}

// --- choices -------------------------------------------------------------------------------------

/** Selectors of a panel; each entry is [key, label, [[value, text], …], value at first]. */
function choices(panel, entries, change) {
  const chosen = {};
  for (const [key, label, options, first] of entries) {
    chosen[key] = first ?? options[0]?.[0];
    if (options.length < 2) {
      if (options.length) {
        panel.querySelector(".controls").append(el("span", { class: "fixed" }, label, el("b", {}, options[0][1])));
      }
      continue;
    }
    const select = el("select", { name: key, onchange: () => {
      chosen[key] = options[select.selectedIndex][0];
      change();
    } }, ...options.map(([value, text]) => el("option", { selected: value === chosen[key] }, String(text))));
    panel.querySelector(".controls").append(el("label", {}, label, select));
  }
  return chosen;
}
const metricOptions = page.metrics.map((metric) => [metric.name, metric.title]);
const placeOptions = page.places.map((place, index) => [index, place.label]);
const clientOptions = page.clients.map((n) => [n, whole(n)]);
const mostClients = page.clients.at(-1) ?? null;
const metricTitle = (name) => page.metrics.find((metric) => metric.name === name).title;

/** Whether a cell belongs to a place; pooled cells belong to all places of their data. */
const isAt = (cell, place) => (cell.place === null ? cell.data === page.places[place].data : cell.place === place);
const hasClients = (cell, n) => cell.clients === null || cell.clients === n;

// --- tables --------------------------------------------------------------------------------------

/**
 * A table that can be sorted.
 * Columns are {key, title, group, number, show(value, row), value(row), mark(value)}.
 */
function table(caption, columns, rows, startsGroup = () => false) {
  const body = el("tbody");
  const valueOf = (column, row) => (column.value ? column.value(row) : row[column.key]);
  let sorted = null;

  function fill() {
    const order = range(rows.length);
    if (sorted) {
      const { column, sign } = sorted;
      order.sort((a, b) => {
        const [x, y] = [valueOf(column, rows[a]), valueOf(column, rows[b])];
        // Missing values are last in both orders.
        if (x === null || y === null || x === undefined || y === undefined) return (x == null) - (y == null) || a - b;
        return sign * (typeof x === "string" ? x.localeCompare(y) : x - y) || a - b;
      });
    }
    body.replaceChildren(...order.map((index, position) => {
      const row = rows[index];
      const starts = !sorted && position > 0 && startsGroup(row, rows[index - 1]);
      return el("tr", { class: starts ? "starts" : "" }, ...columns.map((column, place) => {
        const value = valueOf(column, row);
        const text = column.show ? column.show(value, row) : (value ?? "–");
        const off = column.mark ? column.mark(value) : false;
        const kind = [column.number ? "number" : "", column.wide ? "wide" : "", off ? "off" : ""].join(" ").trim();
        if (place === 0) return el("th", { scope: "row", class: kind }, String(text));
        if (!off) return el("td", { class: kind }, String(text));
        return el("td", { class: kind },
          el("span", { class: "mark", "aria-hidden": "true" }, "◆ "),
          el("span", { class: "hidden" }, "more than 3 standard deviations: "), String(text));
      }));
    }));
  }

  const heads = columns.map((column) => {
    const head = el("th", { scope: "col", class: column.number ? "number" : "" },
      el("button", { type: "button", onclick: () => sortBy(column, head) }, column.title));
    return head;
  });
  function sortBy(column, head) {
    const [first, second] = column.number ? [-1, 1] : [1, -1];
    if (sorted?.column !== column) sorted = { column, sign: first };
    else sorted = sorted.sign === first ? { column, sign: second } : null;
    for (const other of heads) other.removeAttribute("aria-sort");
    if (sorted) head.setAttribute("aria-sort", sorted.sign > 0 ? "ascending" : "descending");
    fill();
  }

  fill();
  const groups = groupsOf(columns);
  const above = groups.some((group) => group.title)
    ? el("tr", {}, ...groups.map((group) => (group.title
      ? el("th", { colspan: group.size, scope: "colgroup", class: "group" }, el("span", {}, group.title))
      : el("td", { colspan: group.size }))))
    : null;
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    el("table", {}, el("caption", {}, caption), el("thead", {}, above, el("tr", {}, ...heads)), body));
}

function groupsOf(columns) {
  const groups = [];
  for (const { group = "" } of columns) {
    if (groups.length && groups.at(-1).title === group) groups.at(-1).size += 1;
    else groups.push({ title: group, size: 1 });
  }
  return groups;
}

function tablesTab(panel) {
  const chosen = choices(panel, [
    ["metric", "Metric", metricOptions],
    ["clients", "Clients per round", clientOptions, mostClients],
    ["share", "Runs", [["all", "all"], ["half", "the best half"]]],
  ], () => paint());

  function paint() {
    const rows = page.tables[chosen.share][chosen.metric][chosen.clients ?? "none"];
    const titles = [...new Set(page.places.map((place) => page.data[place.data].title))];
    const tables = titles.map((title) => {
      const mine = rows.filter((row) => page.data[page.places[row.place].data].title === title);
      return table(`${title}: ${metricTitle(chosen.metric)}`, tableColumns(mine), mine, (row, last) => row.place !== last.place);
    });
    panel.querySelector(".body").replaceChildren(...tables);
    panel.querySelector("#marked").hidden = !panel.querySelector("td.off");
    const compared = rows.some((row) => isNumber(row.paper_mean));
    panel.querySelector("#papers-half").hidden = !compared || chosen.metric === "score" || chosen.share === "half";
  }
  return paint;
}

function tableColumns(rows) {
  const digits = digitsFor(rows.flatMap((row) => [row.mean, row.paper_mean]));
  const number = (key, title) => ({ key, title, group: "this study", number: true, show: (value) => fixed(value, digits) });
  const printed = (name) => ({ key: `paper_${name}`, title: name, group: "paper", number: true, show: (value) => fixed(value, 4) });
  const far = { number: true, group: "difference", show: (value) => signed(value, 2), mark: (value) => Math.abs(value) > 3 };
  const columns = [
    { title: "distribution", value: (row) => page.places[row.place].title },
    { title: "algorithm", value: (row) => titleOf(row.algorithm) },
    { key: "runs", title: "runs", group: "this study", number: true, show: whole },
    ...["mean", "best", "std"].map((name) => number(name, name)),
  ];
  if (!rows.some((row) => isNumber(row.paper_mean))) return columns;
  return [
    ...columns,
    ...["mean", "best", "std"].map(printed),
    {
      title: "of means", group: "difference", number: true, show: (value) => signed(value, digits),
      value: (row) => (isNumber(row.mean) && isNumber(row.paper_mean) ? row.mean - row.paper_mean : null),
    },
    { ...far, key: "off_by_std", title: "in std" },
    { ...far, key: "z", title: "z" },
  ];
}
