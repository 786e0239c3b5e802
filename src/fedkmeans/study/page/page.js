(() => {
"use strict";

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
const START = 0.5;  // where a logarithmic axis of rounds shows what was before the first
const hiddenAlgorithms = new Set();

// --- small helpers -------------------------------------------------------------------------------

/** Make an element; children that are texts are shown as they are, never read as HTML. */
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

/** Plotly reads some HTML in its texts. */
const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
function superscript(number) {
  return [...String(number)].map((letter) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(letter)]).join("");
}
function range(n) {
  return Array.from({ length: n }, (_, i) => i);
}
const isNumber = (value) => typeof value === "number";

/** As many digits after the point as the paper prints, and as numbers of this size need. */
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
    // A finger that moves over a figure scrolls the page.
    dragmode: touch ? false : "zoom",
    hoverlabel: { bgcolor: surface, font: { family, size: 12, color: ink }, align: "left" },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: muted, activecolor: ink },
    ...layout,
  }, {
    responsive: true, displaylogo: false, displayModeBar: touch ? false : "hover",
    // Only what works on this page; others of Plotly's would send the figure elsewhere.
    modeBarButtons: [["toImage", "zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]],
    toImageButtonOptions: { format: "svg", filename: page.name },
  });
}

/** The boxes of figures with these captions; all are there before one is drawn, as they share the width. */
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

/** Whether a cell belongs to a place: its own runs, and the pooled ones of the same data. */
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
        // What is missing stands last, whichever way.
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

// --- participation -------------------------------------------------------------------------------

function participationTab(panel) {
  const chosen = choices(panel, [
    ["metric", "Metric", metricOptions],
    ["share", "Runs", [["half", "the best half"], ["all", "all"]]],
  ], () => paint());
  const body = panel.querySelector(".body");

  function paint() {
    drawLegend(panel);
    const boxes = figures(body, page.places.map((place) => place.label));
    page.places.forEach((place, index) => {
      const traces = participationTraces(index, chosen.metric, chosen.share);
      const n = Math.max(1, page.clients.length);
      draw(boxes[index], traces, {
        xaxis: axis("clients per round", {
          range: [-0.5, n - 0.5], tickvals: range(n), ticktext: page.clients.map(whole), showgrid: false,
        }),
        yaxis: axis(metricTitle(chosen.metric)),
      });
    });
  }
  return paint;
}

function participationTraces(place, metric, share) {
  const n = Math.max(1, page.clients.length);
  const points = page.averages[share][metric].filter((point) => point.place === place && isShown(point.algorithm));
  const federated = [...new Set(points.filter((point) => point.clients !== null).map((point) => point.algorithm))];
  const traces = points.filter((point) => point.clients === null)
    .flatMap((point) => [bandTrace(point, [-0.5, n - 0.5]), levelTrace(point, metric, [-0.5, n - 0.5])]);
  federated.forEach((algorithm, position) => {
    const mine = points.filter((point) => point.algorithm === algorithm);
    // Side by side, so that bars do not hide each other.
    const aside = (position - (federated.length - 1) / 2) * Math.min(0.09, 0.5 / federated.length);
    const colour = colourOf(algorithm);
    traces.push({
      x: mine.map((point) => page.clients.indexOf(point.clients) + aside), y: mine.map((point) => point.mean),
      error_y: { array: mine.map((point) => point.std ?? 0), color: colour, thickness: 1.2, width: 2.5 },
      mode: "lines+markers", line: lineOf(algorithm, 1.6),
      marker: { color: colour, symbol: symbolOf(algorithm), size: 7 },
      text: mine.map((point) => hoverOfPoint(point, metric)), hovertemplate: "%{text}<extra></extra>",
    });
  });
  return traces;
}

/** A level from left to right: pooled data has no clients. */
function levelTrace(point, metric, [left, right], toX = (x) => x) {
  // Many places, so that the pointer finds one of them everywhere.
  const xs = range(25).map((i) => toX(left + i / 24 * (right - left)));
  return {
    x: xs, y: xs.map(() => point.mean), mode: "lines", line: lineOf(point.algorithm, 1.6),
    text: xs.map(() => hoverOfPoint(point, metric)), hovertemplate: "%{text}<extra></extra>",
  };
}

function bandTrace({ mean, std, algorithm }, [left, right]) {
  const [low, high] = [mean - (std ?? 0), mean + (std ?? 0)];
  return {
    x: [left, right, right, left], y: [low, low, high, high], fill: "toself",
    fillcolor: colourOf(algorithm) + "16", mode: "lines", line: { width: 0 }, hoverinfo: "skip",
  };
}

function hoverOfPoint({ algorithm, clients, mean, std, runs, of }, metric) {
  const digits = digitsFor([mean]);
  const spread = isNumber(std) ? ` ± ${fixed(std, digits)}` : "";
  const asked = clients === null ? "pooled data" : `${count(clients, "client")} per round`;
  return `<b>${plain(titleOf(algorithm))}</b><br>${asked}<br>${plain(metricTitle(metric))} ${fixed(mean, digits)}${spread}<br>` +
    (runs < of ? `best ${runs} of ${of} runs` : count(of, "run"));
}

// --- convergence ---------------------------------------------------------------------------------

function convergenceTab(panel) {
  const chosen = choices(panel, [
    ["place", "Distribution", placeOptions],
    ["clients", "Clients per round", clientOptions, mostClients],
  ], () => paint());
  const body = panel.querySelector(".body");

  function paint() {
    drawLegend(panel);
    const here = (cell) => isAt(cell, chosen.place) && hasClients(cell, chosen.clients) && isShown(cell.algorithm);
    const lines = page.curves.filter((curve) => here(page.cells[curve.cell]));
    const last = Math.max(10, ...lines.map((curve) => curve.round.at(-1)));
    const pooled = page.averages.all.score.filter((point) =>
      point.place === chosen.place && point.clients === null && isShown(point.algorithm));
    const ends = [Math.log10(START), Math.log10(last) + 0.08];
    const [score, movement] = figures(body, ["Score after each round", "How far the centroids moved in each round"]);
    draw(score, [
      ...pooled.map((point) => levelTrace(point, "score", ends, (x) => 10 ** x)), ...lines.map((curve) => lineTrace(curve, "score")),
    ], { xaxis: roundAxis(last, START), yaxis: axis("score") });
    draw(movement, lines.map((curve) => lineTrace(curve, "movement")),
      { xaxis: roundAxis(last, 1), yaxis: axis("movement ‖ΔC‖", { type: "log", ...POWERS }) });
  }
  return paint;
}

function roundAxis(last, first) {
  const powers = range(Math.ceil(Math.log10(last)) + 1).map((power) => 10 ** power);
  const start = first < 1 ? [START] : [];
  return axis("round", {
    type: "log", range: [Math.log10(first) - 0.06, Math.log10(last) + 0.08],
    tickvals: [...start, ...powers], ticktext: [...start.map(() => "start"), ...powers.map(whole)],
  });
}

function lineTrace(curve, name) {
  const algorithm = page.cells[curve.cell].algorithm, colour = colourOf(algorithm);
  const kept = range(curve.round.length).filter((i) => isNumber(curve[name][i]) && (name === "score" || curve[name][i] > 0));
  return {
    x: kept.map((i) => curve.round[i] || START), y: kept.map((i) => curve[name][i]),
    mode: "lines+markers", line: lineOf(algorithm, 1.4), opacity: 0.85,
    // The last round has a mark of its own; the others only answer the pointer.
    marker: { color: colour, symbol: symbolOf(algorithm), size: kept.map((_, i) => (i === kept.length - 1 ? 8 : 1)), line: { width: 0 } },
    text: kept.map((i) => `<b>${plain(titleOf(algorithm))}</b>, run ${curve.run}<br>` +
      `${curve.round[i] ? "round " + whole(curve.round[i]) : "start"}<br>${name} ${name === "score" ? fixed(curve[name][i]) : curve[name][i].toPrecision(4)}`),
    hovertemplate: "%{text}<extra></extra>",
  };
}

// --- runs ----------------------------------------------------------------------------------------

function runsTab(panel) {
  const everywhere = placeOptions.length > 1 ? [[null, "all"]] : [];
  const anyClients = clientOptions.length > 1 ? [[null, "all"]] : [];
  const chosen = choices(panel, [
    ["place", "Distribution", [...placeOptions, ...everywhere], 0],
    ["clients", "Clients per round", [...clientOptions, ...anyClients], mostClients],
    ["metric", "Vertical", metricOptions],
    ["against", "Horizontal", [["algorithm", "algorithm"], ["seconds", "seconds"], ["rounds", "rounds"]]],
  ], () => paint());
  const body = panel.querySelector(".body"), note = panel.querySelector("#sampled");
  const shown = page.runs.cell.length;
  note.hidden = shown === page.runs.of;
  note.textContent = `Shown are ${whole(shown)} of ${whole(page.runs.of)} runs, those with the lowest numbers.`;

  function paint() {
    drawLegend(panel);
    const rows = range(shown).filter((row) => {
      const cell = page.cells[page.runs.cell[row]];
      return (chosen.place === null || isAt(cell, chosen.place)) && (chosen.clients === null || hasClients(cell, chosen.clients)) &&
        isShown(cell.algorithm) && isNumber(page.runs[chosen.metric][row]);
    });
    const algorithms = [...new Set(rows.map((row) => page.cells[page.runs.cell[row]].algorithm))].sort((a, b) => a - b);
    const traces = algorithms.map((algorithm, position) => runsTrace(
      rows.filter((row) => page.cells[page.runs.cell[row]].algorithm === algorithm), algorithm, position, chosen));
    const strip = { range: [-0.5, algorithms.length - 0.5], tickvals: range(algorithms.length), ticktext: algorithms.map((a) => plain(titleOf(a))), showgrid: false };
    const by = chosen.against;
    const [box] = figures(body, [`${metricTitle(chosen.metric)} of ${count(rows.length, "run")}`]);
    draw(box, traces, {
      xaxis: by === "algorithm" ? axis("", strip) : axis(by, { type: "log", ...ticksOf(rows.map((row) => page.runs[by][row])) }),
      yaxis: axis(metricTitle(chosen.metric)),
    });
  }
  return paint;
}

/** Ticks of a logarithmic axis: tens, and twos and fives between them where there is room. */
function ticksOf(values) {
  const logs = values.filter((value) => value > 0).map(Math.log10);
  if (!logs.length) return {};
  const least = Math.floor(Math.min(...logs)), most = Math.ceil(Math.max(...logs));
  const steps = most - least > 2 ? [1] : [1, 2, 5];
  // From whole numbers, as 10 ** -2 * 5 is not 0.05.
  const vals = range(most - least + 1).flatMap((i) => steps.map((step) => Number(`${step}e${least + i}`)));
  return { tickvals: vals, ticktext: vals.map((value) => value.toLocaleString("en", { maximumSignificantDigits: 3 })) };
}

function runsTrace(rows, algorithm, position, { metric, against }) {
  const { runs } = page;
  // Spread evenly by the golden ratio: the same run is always at the same place.
  const aside = (row) => ((runs.run[row] * 0.618034) % 1 - 0.5) * 0.6;
  const colour = colourOf(algorithm);
  return {
    x: rows.map((row) => (against === "algorithm" ? position + aside(row) : runs[against][row])),
    y: rows.map((row) => runs[metric][row]),
    mode: "markers", marker: { color: colour, symbol: symbolOf(algorithm), size: 7, opacity: 0.7 },
    text: rows.map((row) => hoverOfRun(row, metric)), hovertemplate: "%{text}<extra></extra>",
  };
}

function hoverOfRun(row, metric) {
  const { runs } = page, cell = page.cells[runs.cell[row]];
  const where = cell.place === null ? "pooled data" : `${plain(page.places[cell.place].label)}, ${count(cell.clients, "client")} per round`;
  return `<b>${plain(titleOf(cell.algorithm))}</b>, run ${runs.run[row]}<br>seed ${runs.seed[row]}<br>${where}<br>` +
    `${plain(metricTitle(metric))} ${fixed(runs[metric][row])}<br>${count(runs.rounds[row], "round")}, ` +
    `${seconds(runs.seconds[row])} s, stopped by ${plain(runs.stop_reason[row])}`;
}

// --- centroids -----------------------------------------------------------------------------------

const LEADS = {
  images: ({ paper, ink }) => {
    const digits = Math.max(0, digitsFor([Math.abs(ink - paper)]) - 2);
    const shades = dark.matches && !printing ? ["dark", "light"] : ["light", "dark"];
    return `Centroids of run 0 as pictures; in all of them ${fixed(paper, digits)} is ${shades[0]} and ${fixed(ink, digits)} ${shades[1]}. `;
  },
  plane: () => "Centroids of run 0. Choose a name above the figure to hide it.",
  table: () => "Centroids of run 0, one a row; shaded from the least to the largest value of each column. ",
  none: (view) => `Centroids of ${whole(view.columns)} columns are neither square pictures nor few enough numbers to be shown.`,
  missing: () => "No centroids are kept: they are those of run 0, which is not done.",
};
const ORDER = "Centroids have no order of their own; here each stands where the one nearest to it stands in the first algorithm.";

function centroidsTab(panel) {
  const algorithms = [...new Set(page.cells.map((cell) => cell.algorithm))].sort((a, b) => a - b).map((a) => [a, titleOf(a)]);
  const chosen = choices(panel, [
    ["place", "Distribution", placeOptions],
    ["clients", "Clients per round", clientOptions, mostClients],
    ["algorithm", "Algorithm", algorithms.length > 1 ? [[null, "all"], ...algorithms] : algorithms],
  ], () => paint());
  const body = panel.querySelector(".body");

  function paint() {
    const view = page.data[page.places[chosen.place].data].view;
    const order = ["images", "table"].includes(view.kind) ? ORDER : "";
    panel.querySelector("#centroids-lead").textContent = LEADS[view.kind](view) + order;
    const cells = range(page.cells.length).filter((index) => {
      const cell = page.cells[index];
      return isAt(cell, chosen.place) && hasClients(cell, chosen.clients) && (chosen.algorithm === null || cell.algorithm === chosen.algorithm);
    });
    body.className = view.kind === "plane" ? "body plots one square" : "body";
    if (view.kind === "plane") {
      if (!body.querySelector(".plot")) body.replaceChildren();
      drawPlane(body, cells);
    } else if (["images", "table"].includes(view.kind)) {
      const show = view.kind === "images" ? tiles : heatTable;
      body.replaceChildren(...cells.flatMap((index) => [
        el("h3", {}, titleOf(page.cells[index].algorithm) + (page.cells[index].clients === null ? " (pooled)" : "")),
        index in page.centroids ? show(page.centroids[index], titleOf(page.cells[index].algorithm), view)
          : el("p", { class: "nothing" }, "Run 0 of this combination is not done."),
      ]));
    } else body.replaceChildren();
  }
  return paint;
}

function tiles(source, title, view) {
  const side = Math.round(Math.sqrt(view.columns));
  const box = el("div", { class: "tiles" });
  const picture = new Image();
  picture.addEventListener("load", () => {
    const k = picture.naturalHeight / side;
    // Full lines, where there is room for them.
    box.style.setProperty("--most", k <= 10 ? 10 : range(9).map((i) => 20 - i).find((n) => k % n === 0) ?? 20);
    for (const i of range(k)) {
      const canvas = el("canvas", { width: side, height: side, role: "img", "aria-label": `${title}, centroid ${i + 1} of ${k}` });
      canvas.getContext("2d").drawImage(picture, 0, i * side, side, side, 0, 0, side, side);
      box.append(el("figure", { class: "tile" }, el("div", {}, canvas), String(i + 1)));
    }
  });
  picture.src = source;
  return box;
}

function heatTable(rows, title) {
  const columns = range(rows[0].length);
  const bounds = columns.map((c) => {
    const values = rows.map((row) => row[c]).filter(isNumber);
    return [Math.min(...values), Math.max(...values), digitsFor(values)];
  });
  const cellOf = (value, c) => {
    const [low, high, digits] = bounds[c];
    const depth = isNumber(value) && high > low ? Math.round((value - low) / (high - low) * 32) : 0;
    return el("td", { class: "number", style: `background: color-mix(in srgb, var(--accent) ${depth}%, var(--page))` }, fixed(value, Math.min(digits, 4)));
  };
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `Centroids of ${title}` }, el("table", {},
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "centroid"), ...columns.map((c) => el("th", { scope: "col", class: "number" }, `column ${c + 1}`)))),
    el("tbody", {}, ...rows.map((row, i) => el("tr", {}, el("th", { scope: "row" }, String(i + 1)), ...row.map(cellOf))))));
}

function drawPlane(body, indices) {
  const traces = indices.filter((index) => index in page.centroids).map((index, position) => {
    const { algorithm } = page.cells[index], rows = page.centroids[index];
    return {
      x: rows.map((row) => row[0]), y: rows.map((row) => row[1]), mode: "markers", name: plain(titleOf(algorithm)),
      marker: { symbol: symbolOf(algorithm) + "-open", size: 9 + 4 * position, color: colourOf(algorithm), line: { width: 1.6 } },
      text: rows.map((row, i) => `<b>${plain(titleOf(algorithm))}</b><br>centroid ${i + 1}<br>(${fixed(row[0], 4)}, ${fixed(row[1], 4)})`),
      hovertemplate: "%{text}<extra></extra>",
    };
  });
  draw(figures(body, ["Where the centroids are"])[0], traces, {
    showlegend: true, legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 },
    xaxis: axis("first column", { constrain: "domain" }),
    yaxis: axis("second column", { scaleanchor: "x", constrain: "domain" }),
  });
}

// --- about ---------------------------------------------------------------------------------------

function aboutTab(panel) {
  const reasons = [...new Set(page.cells.flatMap((cell) => Object.keys(cell.stops)))].sort();
  const placed = (cell) => (cell.place === null ? "pooled" : page.places[cell.place].label);
  const dataTitles = new Set(page.data.map((data) => data.title));
  const where = dataTitles.size > 1 ? [{ title: "data", value: (cell) => page.data[cell.data].title }] : [];
  const columns = [
    ...where,
    { title: "distribution", value: (cell) => (cell.place === null ? "pooled" : page.places[cell.place].title) },
    { title: "algorithm", value: (cell) => titleOf(cell.algorithm) },
    { title: "clients", key: "clients", number: true, show: whole },
    { title: "runs", key: "runs", number: true, show: whole },
    ...reasons.map((reason) => ({ title: reason, group: "stopped by", number: true, value: (cell) => cell.stops[reason] ?? 0, show: (n) => (n ? whole(n) : "·") })),
    ...["mean", "least", "most"].map((title, i) => ({ title, group: "rounds", number: true, value: (cell) => cell.rounds[i], show: (n) => fixed(n, i ? 0 : 1) })),
    ...["mean", "total"].map((title, i) => ({ title, group: "seconds", number: true, value: (cell) => cell.seconds[i], show: (n) => fixed(n, i ? 1 : 3) })),
  ];
  const algorithms = [
    { title: "algorithm", key: "title" },
    { title: "name", key: "name" },
    { title: "in the catalogue", key: "kind" },
    { title: "set in the plan", key: "settings", wide: true, show: (text) => text || "–" },
  ];
  return () => {
    panel.querySelector("#stops").replaceChildren(table("Each combination", columns, page.cells, (cell, last) => placed(cell) !== placed(last)));
    panel.querySelector("#algorithms").replaceChildren(table("Algorithms of the plan", algorithms, page.algorithms));
  };
}

// --- tabs ----------------------------------------------------------------------------------------

const tabs = [...document.querySelectorAll('[role="tab"]')];
const makers = {
  tables: tablesTab, participation: participationTab, convergence: convergenceTab, runs: runsTab,
  centroids: centroidsTab, about: aboutTab,
};
const nameOf = (tab) => tab.id.slice("tab-".length);
const panelOf = (tab) => document.getElementById(tab.getAttribute("aria-controls"));
const painters = Object.fromEntries(tabs.map((tab) => [nameOf(tab), makers[nameOf(tab)](panelOf(tab))]));
const fresh = new Set();  // panels that show what they should

function open(name) {
  for (const tab of tabs) {
    const chosen = nameOf(tab) === name;
    tab.setAttribute("aria-selected", String(chosen));
    tab.tabIndex = chosen ? 0 : -1;
    panelOf(tab).hidden = !chosen;
    if (chosen) tab.scrollIntoView({ block: "nearest", inline: "nearest" });
  }
  paint(name);
}
function paint(name) {
  if (fresh.has(name)) return;
  painters[name]();
  fresh.add(name);
}
function current() {
  const name = location.hash.slice(1);
  return name in painters ? name : nameOf(tabs[0]);
}
function redraw() {
  fresh.clear();
  paint(current());
}

for (const tab of tabs) {
  tab.addEventListener("click", () => { location.hash = nameOf(tab); });
  tab.addEventListener("keydown", (event) => {
    const at = tabs.indexOf(tab);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1 + tabs.length, Home: 0, End: tabs.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    tabs[to % tabs.length].focus();
    location.hash = nameOf(tabs[to % tabs.length]);
  });
}
window.addEventListener("hashchange", () => open(current()));
dark.addEventListener("change", redraw);
document.getElementById("pooled-note").hidden = !page.algorithms.some((algorithm) => algorithm.pooled);

// On paper all parts follow each other, in the colours of paper.
window.addEventListener("beforeprint", () => {
  printing = true;
  document.documentElement.classList.add("printing");  // as wide as paper before anything is drawn
  for (const tab of tabs) panelOf(tab).hidden = false;
  fresh.clear();
  for (const name of Object.keys(painters)) paint(name);
});
window.addEventListener("afterprint", () => {
  printing = false;
  document.documentElement.classList.remove("printing");
  fresh.clear();
  open(current());
});

open(current());
})();
