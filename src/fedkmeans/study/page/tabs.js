// The tabs of the page; page.js is before this in the same scope.

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
    // Only the last round has a visible mark; the others show a text at the pointer.
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
  table: () => "Centroids of run 0, one per row; shaded from the least to the largest value of each column. ",
  none: (view) => `Centroids of ${whole(view.columns)} columns are neither square pictures nor few enough numbers to show.`,
  missing: () => "No centroids: run 0, which records them, is not done.",
};
const ORDER = "Centroids are in the order of the nearest centroids of the first algorithm.";

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
    { title: "in the registry", key: "kind" },
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
const fresh = new Set();  // panels that are up to date

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

// For printing, show all tabs one after the other, in light colours.
window.addEventListener("beforeprint", () => {
  printing = true;
  document.documentElement.classList.add("printing");  // the width of paper, before anything is drawn
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
