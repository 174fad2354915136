"use strict";
// The charts of the report. Data: the element #data; drawing: Observable Plot (and d3, on which it stands).
// Every text, class names above all, reaches the page as text (textContent, SVG text), never as HTML.

const data = JSON.parse(document.getElementById("data").textContent);
const byName = new Map(data.signals.map((s) => [s.name, s]));
const bounded = data.signals.map((s) => s.name).filter((name) => name !== "loss");
const $ = (selector) => document.querySelector(selector);
const chart = (name) => $(`[data-chart="${name}"]`);
const colour = (signal) => `var(--s-${signal})`;
const taskColour = (task) => data.tasks[task % data.tasks.length];
const percent = (x, digits = 1) => (x === null || !isFinite(x) ? "–" : `${(100 * x).toFixed(digits)} %`);
const number = (x, digits = 3) => (x === null || !isFinite(x) ? "–" : x.toFixed(digits));
const shown = (signal, x) => (signal === "accuracy" ? percent(x) : number(x));
const short = (text, most = 14) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

let run; // what is shown: an entry of data.runs, with `values`, (signal) -> Float32Array of epochs x classes

// ---- small helpers ------------------------------------------------------------------------------------------------

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null) made.setAttribute(name, value);
  }
  made.append(...children); // strings become text nodes
  return made;
}

const say = (where, text) => where.replaceChildren(element("p", { class: "none" }, text));

/** Inverse of `pack` in report_pack.py: differences in time, low bytes then high bytes, deflated, base64. */
async function unpack(packed) {
  const bytes = Uint8Array.from(atob(packed.data), (c) => c.charCodeAt(0));
  const inflated = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const raw = new Uint8Array(await new Response(inflated).arrayBuffer());
  const [epochs, classes] = packed.shape.slice(-2);
  const size = raw.length / 2;
  const values = new Float32Array(size);
  const whole = new Uint16Array(size);
  for (let i = 0; i < size; i++) {
    const before = Math.floor(i / classes) % epochs ? whole[i - classes] : 0;
    whole[i] = before + raw[i] + (raw[size + i] << 8); // wraps around, as it should
    values[i] = whole[i] === 0xffff ? NaN : whole[i] * packed.step;
  }
  return values;
}

const tip = $("#tip");
function showTip(text, event) {
  tip.textContent = text;
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const x = Math.min(event.clientX + 14, innerWidth - box.width - 6);
  const y = event.clientY + 18 + box.height > innerHeight ? event.clientY - box.height - 10 : event.clientY + 18;
  tip.style.left = `${Math.max(6, x)}px`;
  tip.style.top = `${Math.max(6, y)}px`;
}
const hideTip = () => (tip.hidden = true);

const className = (c) => run.names[c] ?? String(c);
const position = (c) => run.classes.indexOf(c);
const width = (figure) => Math.max(240, figure.clientWidth - 20);
/** The starts of tasks, between the epochs on either side. */
const boundaries = () => run.boundaries.map((b) => ({ at: b + 0.5, task: run.tasks[b] }));

function draw(figure, plot, label) {
  plot.setAttribute("role", "img");
  plot.setAttribute("aria-label", label);
  figure.replaceChildren(plot);
  return plot;
}

// ---- trajectories -------------------------------------------------------------------------------------------------

function fillWho() {
  const who = $("#who");
  const before = who.value;
  const tasks = [...new Set(run.class_task)];
  const groups = tasks.map((task) => {
    const group = element("optgroup", { label: `Classes of task ${task + 1}` });
    run.classes.forEach((c, k) => run.class_task[k] === task && group.append(element("option", { value: `class ${c}` }, className(c))));
    return group;
  });
  const means = element("optgroup", { label: "Mean ± std over the classes" });
  means.append(...tasks.map((task) => element("option", { value: `task ${task}` }, `task ${task + 1}`)));
  who.replaceChildren(means, ...groups);
  if ([...who.options].some((o) => o.value === before)) who.value = before;
}

/** Mean and deviation of each signal at each epoch, over the classes that are chosen. */
function courses(signals) {
  const [kind, id] = $("#who").value.split(" ").map((part, i) => (i ? Number(part) : part));
  const columns = kind === "class" ? [position(id)] : d3.range(run.classes.length).filter((k) => run.class_task[k] === id);
  return d3.range(run.epochs).map((epoch) => {
    const row = { epoch: epoch + 1, task: run.tasks[epoch] };
    for (const signal of signals) {
      const there = columns.map((k) => run.values[signal][epoch * run.classes.length + k]).filter(isFinite);
      row[signal] = there.length ? d3.mean(there) : NaN;
      row[`${signal} std`] = d3.deviation(there) ?? 0;
    }
    return row;
  });
}

function drawCurves() {
  const figure = chart("curves");
  if (!run.values) return say(figure, noCurves());
  const signals = [...document.querySelectorAll("#which input:checked")].map((box) => box.value);
  if (!signals.length) return say(figure, "Choose at least one signal.");
  const rows = courses(signals);
  const most = signals.includes("loss") ? Math.max(1, d3.max(rows, (r) => r.loss + r["loss std"]) || 1) : 1;
  const scale = (signal) => (signal === "loss" ? 1 / most : 1);
  const label = (signal) => (signal === "loss" && most > 1 ? `loss ÷ ${most.toFixed(1)}` : signal);
  const height = Math.min(420, Math.max(260, width(figure) * 0.45));
  const ends = spread(signals.map((signal) => {
    const last = rows.findLast((r) => isFinite(r[signal]));
    return last && { signal, x: last.epoch, y: last[signal] * scale(signal) };
  }).filter(Boolean), 14 / (height - 60));
  const wide = $("#who").value.startsWith("task");
  const plot = Plot.plot({
    width: width(figure), height, marginRight: 76, marginTop: 26, marginBottom: 34,
    x: { label: "epoch", domain: [0.5, run.epochs + 0.5], ticks: Math.min(run.epochs, 10), tickFormat: "d" },
    y: { domain: [0, 1], label: null, grid: true, ticks: 5 },
    marks: [
      Plot.ruleX(boundaries(), { x: "at", stroke: "var(--soft)", strokeDasharray: "3 3" }),
      Plot.text(boundaries(), { x: "at", text: (b) => `task ${b.task + 1}`, frameAnchor: "top", dy: -14, fill: "var(--soft)" }),
      wide ? signals.map((s) => Plot.areaY(rows, {
        x: "epoch", y1: (r) => Math.max(0, scale(s) * (r[s] - r[`${s} std`])), y2: (r) => Math.min(1, scale(s) * (r[s] + r[`${s} std`])),
        fill: colour(s), fillOpacity: 0.12,
      })) : null,
      signals.map((s) => Plot.line(rows, { x: "epoch", y: (r) => scale(s) * r[s], stroke: colour(s), strokeWidth: s === "accuracy" ? 2.4 : 1.8 })),
      // A class with a single evaluation has no line.
      rows.length === 1 ? signals.map((s) => Plot.dot(rows, { x: "epoch", y: (r) => scale(s) * r[s], fill: colour(s) })) : null,
      Plot.text(ends, { x: "x", y: "y", text: (e) => label(e.signal), dx: 8, textAnchor: "start", fill: (e) => colour(e.signal), fontWeight: 600 }),
      Plot.ruleX(rows, Plot.pointerX({ x: "epoch", stroke: "var(--near)", maxRadius: Infinity })),
    ],
    color: { type: "identity" },
  });
  plot.addEventListener("pointermove", (event) => {
    const row = plot.value;
    if (!row) return hideTip();
    const lines = signals.map((s) => `${s} ${shown(s, row[s])}${wide && isFinite(row[s]) ? ` ± ${shown(s, row[`${s} std`])}` : ""}`);
    showTip([`epoch ${row.epoch}, task ${row.task + 1}`, ...lines].join("\n"), event);
  });
  plot.addEventListener("pointerleave", hideTip);
  draw(figure, plot, `${$("#who").selectedOptions[0].text}: ${signals.join(", ")} over ${run.epochs} epochs`);
}

/** Move labels apart until each has its `gap`, in the units of the axis, and all are on it. */
function spread(labels, gap) {
  labels.sort((a, b) => b.y - a.y);
  for (let i = 1; i < labels.length; i++) labels[i].y = Math.min(labels[i].y, labels[i - 1].y - gap);
  for (let i = labels.length - 1, floor = 0; i >= 0; i--, floor += gap) labels[i].y = Math.max(labels[i].y, floor);
  return labels;
}

function showClass(c) {
  $("#who").value = `class ${c}`;
  drawCurves();
  $("#curves").scrollIntoView({ behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
}

// ---- heat maps ----------------------------------------------------------------------------------------------------

/** Classes x epochs; `values` is epochs x classes. Calls `point(epoch, k, event)` where the pointer is, or with null. */
function heatMap(figure, values, { epochs, columns, tasks, domain, reverse, label, legend, point }) {
  const k = columns.length;
  const grid = new Float32Array(epochs * k); // Plot wants row by row: class by class
  for (let e = 0; e < epochs; e++) for (let i = 0; i < k; i++) grid[i * epochs + e] = values[e * k + i];
  const starts = d3.range(1, epochs).filter((e) => tasks[e] !== tasks[e - 1]);
  const groups = d3.groups(d3.range(k), (i) => run.class_task[i]).map(([task, rows]) => ({ task, from: rows[0], to: rows.at(-1) + 1 }));
  const named = k <= 40;
  const plot = Plot.plot({
    width: width(figure), height: Math.min(640, Math.max(160, k * (named ? 14 : 5) + 40)), marginLeft: named ? 96 : 56, marginRight: 6,
    x: { domain: [0.5, epochs + 0.5], label: "epoch", ticks: Math.min(epochs, 10), tickFormat: "d" },
    y: { domain: [k, 0], axis: null },
    color: { scheme: data.sequential, domain, reverse, clamp: true, label: legend },
    marks: [
      Plot.raster(grid, { width: epochs, height: k, x1: 0.5, x2: epochs + 0.5, y1: 0, y2: k, imageRendering: "pixelated" }),
      Plot.ruleX(starts, { x: (e) => e + 0.5, stroke: "var(--card)", strokeWidth: 1 }),
      Plot.ruleY(groups.slice(1), { y: "from", stroke: "var(--card)", strokeWidth: 1 }),
      named
        ? Plot.text(columns, { x: 0.5, y: (c, i) => i + 0.5, text: (c) => short(className(c)), textAnchor: "end", dx: -6, fontSize: 11 })
        : Plot.text(groups, { x: 0.5, y: (g) => (g.from + g.to) / 2, text: (g) => `task ${g.task + 1}`, textAnchor: "end", dx: -6, fill: "var(--soft)" }),
    ],
  });
  const [x, y] = [plot.scale("x"), plot.scale("y")];
  const cursor = d3.select(plot).append("rect").attr("fill", "none").attr("stroke", "var(--lost)").attr("stroke-width", 2).attr("display", "none");
  function mark(epoch, i) {
    const box = [x.apply(epoch + 0.5), x.apply(epoch + 1.5), y.apply(i), y.apply(i + 1)];
    cursor.attr("display", null).attr("x", box[0]).attr("width", Math.max(3, box[1] - box[0])).attr("y", box[2]).attr("height", Math.max(3, box[3] - box[2]));
  }
  plot.addEventListener("pointermove", (event) => {
    const frame = plot.getBoundingClientRect();
    const zoom = plot.width.baseVal.value / frame.width;
    const epoch = Math.round(x.invert((event.clientX - frame.left) * zoom)) - 1;
    const i = Math.floor(y.invert((event.clientY - frame.top) * zoom));
    const inside = epoch >= 0 && epoch < epochs && i >= 0 && i < k;
    if (inside) mark(epoch, i);
    point(inside ? { epoch, i } : null, event);
  });
  plot.addEventListener("pointerleave", hideTip);
  const key = Plot.legend({ color: plot.scale("color"), label: legend, width: Math.min(260, width(figure)), height: 44 });
  plot.setAttribute("role", "img");
  plot.setAttribute("aria-label", label);
  figure.replaceChildren(key, plot);
  return mark;
}

let markCell = null;
let cell = { epoch: 0, i: 0 };

function cellText({ epoch, i }) {
  const at = epoch * run.classes.length + i;
  const signal = $("#map-signal").value;
  const others = data.signals.map((s) => s.name).filter((name) => name !== signal);
  const head = `${className(run.classes[i])}, epoch ${epoch + 1} (class of task ${run.class_task[i] + 1}, during task ${run.tasks[epoch] + 1})`;
  if (!isFinite(run.values.accuracy[at])) return `${head}\nnot evaluated yet`;
  const line = (names) => names.map((name) => `${name} ${shown(name, run.values[name][at])}`).join(", ");
  return `${head}\n${line([signal])}\n${line(others)}`;
}

function drawMap() {
  const figure = chart("map");
  $("#map-readout").textContent = "";
  if (!run.values) return say(figure, noCurves());
  const signal = byName.get($("#map-signal").value);
  const values = run.values[signal.name];
  markCell = heatMap(figure, values, {
    epochs: run.epochs, columns: run.classes, tasks: run.tasks, reverse: !signal.higher, legend: signal.title,
    domain: signal.name === "loss" ? [0, d3.quantile(values.filter(isFinite), 0.98) || 1] : [0, 1],
    label: `${signal.title} of ${run.classes.length} classes over ${run.epochs} epochs`,
    point(at, event) {
      if (!at) return hideTip();
      cell = at;
      showTip(cellText(at), event);
    },
  });
  cell = { epoch: Math.min(cell.epoch, run.epochs - 1), i: Math.min(cell.i, run.classes.length - 1) };
}

function moveCell(event) {
  const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1], Home: [-Infinity, 0], End: [Infinity, 0], PageUp: [0, -10], PageDown: [0, 10] };
  if (!run.values || event.ctrlKey || event.altKey || event.metaKey) return;
  if (event.key === "Enter") showClass(run.classes[cell.i]);
  else if (steps[event.key]) {
    const clamp = (x, most) => Math.max(0, Math.min(most, x));
    const [dx, dy] = steps[event.key];
    cell = { epoch: clamp(cell.epoch + dx, run.epochs - 1), i: clamp(cell.i + dy, run.classes.length - 1) };
    markCell(cell.epoch, cell.i);
    $("#map-readout").textContent = cellText(cell).replaceAll("\n", "; ");
  } else return;
  event.preventDefault();
}

// ---- distributions ------------------------------------------------------------------------------------------------

function drawConditional() {
  const where = chart("conditional");
  const levels = d3.groups(run.conditional, (row) => row.level);
  where.replaceChildren(...levels.map(([level, rows]) => {
    const figure = element("figure", { class: "card" });
    figure.append(element("h3", {}, `${100 * level} % accuracy `, element("small", {}, `n = ${rows[0].n.toLocaleString("en")}`)));
    return figure;
  }));
  levels.forEach(([level, rows], i) => {
    const figure = where.children[i];
    if (!rows[0].n) return figure.append(element("p", { class: "none" }, `No class was at this accuracy: with ${d3.median(run.images)} test images a class it moves in steps of ${(100 / d3.median(run.images)).toFixed(1)} points.`));
    const bins = rows.flatMap((row) => {
      const top = d3.max(row.density);
      return row.density.map((d, j) => ({ signal: row.signal, x: (j + 0.5) / row.density.length, d: d / top }));
    });
    const plot = Plot.plot({
      width: width(figure), height: 250, marginLeft: 54, marginBottom: 30, marginRight: 8, marginTop: 4,
      x: { domain: [0, 1], label: null, ticks: 5 }, y: { axis: null, domain: [-1.1, 1.1] },
      fy: { domain: bounded.slice(1), label: null, axis: "left", padding: 0.08 }, color: { type: "identity" },
      marks: [
        Plot.areaY(bins, { fy: "signal", x: "x", y1: (b) => -b.d, y2: "d", fill: (b) => colour(b.signal), z: "signal", fillOpacity: 0.4, curve: "basis" }),
        Plot.ruleY(rows, { fy: "signal", y: 0, x1: "q1", x2: "q3", stroke: (r) => colour(r.signal), strokeWidth: 4 }),
        Plot.dot(rows, { fy: "signal", x: "median", y: 0, r: 4, fill: "var(--card)", stroke: (r) => colour(r.signal), strokeWidth: 2,
          title: (r) => `${r.signal}: median ${number(r.median)}, middle half ${number(r.q1)} to ${number(r.q3)}, n = ${r.n}` }),
      ],
    });
    plot.setAttribute("role", "img");
    plot.setAttribute("aria-label", rows.map((r) => `${r.signal}: median ${number(r.median)}, from ${number(r.q1)} to ${number(r.q3)}`).join("; "));
    figure.append(plot);
  });
}

function drawSmoothness() {
  const figure = chart("smoothness");
  const rows = run.smoothness.filter((row) => row.n);
  if (run.missing.smoothness || !rows.length) return say(figure, run.missing.smoothness ?? "There is no change to show.");
  const strong = (row) => (row.phase === "transition" ? 1 : 0);
  const common = { fy: "signal", y: "phase" };
  const plot = Plot.plot({
    width: width(figure), height: 360, marginLeft: 60, marginRight: 76, marginBottom: 36,
    x: { label: "absolute change from epoch to epoch", grid: true, nice: true, zero: true }, y: { domain: ["transition", "stable"], axis: null, padding: 0.25 },
    fy: { domain: bounded, label: null, axis: "left", padding: 0.18 }, color: { type: "identity" },
    marks: [
      Plot.ruleY(rows, { ...common, x1: "whisker_low", x2: "whisker_high", stroke: (r) => colour(r.signal) }),
      Plot.barX(rows, { ...common, x1: "q1", x2: "q3", fill: (r) => (strong(r) ? colour(r.signal) : "var(--card)"), stroke: (r) => colour(r.signal), strokeWidth: 1.5,
        title: (r) => `${r.signal}, ${r.phase}: median ${number(r.median)}, middle half ${number(r.q1)} to ${number(r.q3)}, whisker to ${number(r.whisker_high)}, greatest ${number(r.max)}, n = ${r.n}` }),
      Plot.tickX(rows, { ...common, x: "median", stroke: (r) => (strong(r) ? "var(--card)" : colour(r.signal)), strokeWidth: 2.5 }),
      Plot.dot(rows, { ...common, x: "max", r: 2, fill: (r) => colour(r.signal) }),
      Plot.text(rows.filter((r) => r.signal === "accuracy"), { ...common, x: "max", text: "phase", dx: 7, textAnchor: "start", fill: "var(--soft)", fontSize: 11 }),
    ],
  });
  draw(figure, plot, "change from epoch to epoch by signal, around the start of a task and elsewhere");
  const n = (phase) => rows.find((r) => r.phase === phase)?.n ?? 0;
  figure.append(element("p", { class: "foot" }, `Transition: ${run.around} epochs on either side of the start of a task. ` +
    `n = ${n("transition").toLocaleString("en")} in transition, ${n("stable").toLocaleString("en")} stable; a dot is the greatest change.`));
}

// ---- where the probability went, and who was replayed ---------------------------------------------------------------

function fillFlow() {
  const lost = run.flow ? run.classes.map((c, k) => ({ c, k })).filter(({ k }) => run.old[k]) : [];
  const own = (k) => run.flow.own.at(-1)[k];
  lost.sort((a, b) => own(a.k) - own(b.k));
  $("#flow-class").replaceChildren(...lost.map(({ c, k }) => element("option", { value: k }, `${className(c)} (kept ${percent(own(k))})`)));
  $("#flow .controls").hidden = !lost.length;
}

function drawFlow() {
  const [figure, side] = [chart("flow"), chart("takers")];
  const nothing = run.flow ? run.missing.flow : run.missing.flow ?? noCurves();
  side.hidden = Boolean(nothing);
  if (nothing) return say(figure, nothing);
  const k = Number($("#flow-class").value);
  const name = className(run.classes[k]);
  const after = (moment) => `after ${run.flow.after[moment] + 1}`;
  const parts = run.flow.after.flatMap((task, moment) => task < run.class_task[k] ? [] : [
    { after: after(moment), who: "its own label", share: run.flow.own[moment][k], fill: "var(--ink)" },
    ...run.flow.by_task[moment][k].map((share, t) => ({ after: after(moment), who: `task ${t + 1}`, share, fill: taskColour(t) })),
  ].filter((part) => part.share > 0));
  const stack = Plot.plot({
    width: width(figure), height: 280, marginLeft: 40, x: { label: null, type: "band", domain: [...new Set(parts.map((p) => p.after))] },
    y: { label: null, percent: true, grid: true, domain: [0, 100] }, color: { type: "identity" },
    marks: [Plot.barY(parts, { x: "after", y: "share", fill: "fill", insetLeft: 4, insetRight: 4, title: (p) => `${p.who}: ${percent(p.share)}` })],
  });
  draw(figure, stack, `where the probability of ${name} went, by task`);
  const seen = [...new Map(parts.map((p) => [p.who, p.fill]))];
  const legend = element("div", { class: "controls" }, ...seen.map(([who, fill]) => {
    const swatch = element("i", { class: "swatch" });
    swatch.style.setProperty("--tone", fill);
    return element("span", { class: "chip" }, swatch, who);
  }));
  legend.querySelectorAll(".chip").forEach((chip) => (chip.style.opacity = 1));
  figure.prepend(element("h3", {}, `${short(name, 40)}, `, element("small", {}, "% of the probability after each task")), legend);

  const takers = run.flow.takers[k].filter(([, share]) => share > 0).map(([c, share]) => ({ c, share, task: run.class_task[position(c)] }));
  const bars = Plot.plot({
    width: width(side), height: 24 * takers.length + 40, marginLeft: 110, marginRight: 46, x: { axis: null, domain: [0, Math.max(0.01, d3.max(takers, (t) => t.share) ?? 0)] },
    y: { domain: takers.map((t) => t.c), label: null, tickFormat: (c) => short(className(c)), tickSize: 0 }, color: { type: "identity" },
    marks: [
      Plot.barX(takers, { y: "c", x: "share", fill: (t) => (t.task === undefined ? "var(--soft)" : taskColour(t.task)), insetTop: 3, insetBottom: 3,
        title: (t) => `${className(t.c)}${t.task === undefined ? "" : `, task ${t.task + 1}`}: ${percent(t.share)}` }),
      Plot.text(takers, { y: "c", x: "share", text: (t) => percent(t.share), textAnchor: "start", dx: 5 }),
    ],
  });
  draw(side, bars, `the classes that took most of the probability of ${name}`);
  side.prepend(element("h3", {}, "Who took it ", element("small", {}, "at the end")));
}

function drawDraw() {
  const [figure, left, right] = [chart("draw"), chart("effective"), chart("current")];
  const nothing = run.missing.draw ?? (run.draw ? undefined : noCurves());
  left.parentElement.hidden = Boolean(nothing);
  if (nothing) return say(figure, nothing);
  const { task, effective, current } = run.draw;
  const epochs = task.length;
  const k = run.draw.values.length / epochs;
  const relative = new Float32Array(epochs * k);
  for (let e = 0; e < epochs; e++) {
    const shares = run.draw.values.subarray(e * k, (e + 1) * k);
    const drawn = shares.filter((share) => share > 0).length;
    shares.forEach((share, i) => (relative[e * k + i] = share > 0 ? share * drawn : run.class_task[i] > task[e] ? NaN : share * drawn));
  }
  heatMap(figure, relative, {
    epochs, columns: run.classes.slice(0, k), tasks: task, domain: [0, 3], legend: "times an even share", reverse: false,
    label: `part of each class in the replay of ${epochs} epochs`,
    point(at, event) {
      if (!at) return hideTip();
      const i = at.epoch * k + at.i;
      const text = isFinite(relative[i]) ? `${percent(run.draw.values[i], 2)} of the replay, ${number(relative[i], 2)} times an even share` : "not learnt yet";
      showTip(`${className(run.classes[at.i])}, epoch ${at.epoch + 1}\n${text}`, event);
    },
  });
  const starts = d3.range(1, epochs).filter((e) => task[e] !== task[e - 1]);
  const line = (where, values, title, domain, text) => {
    const rows = values.map((value, e) => ({ epoch: e + 1, value: value ?? NaN }));
    const plot = Plot.plot({
      width: width(where), height: 190, marginLeft: 40, x: { label: "epoch", domain: [0.5, epochs + 0.5], ticks: Math.min(epochs, 8), tickFormat: "d" }, y: { label: null, grid: true, domain, ticks: 5 },
      marks: [
        Plot.ruleX(starts, { x: (e) => e + 0.5, stroke: "var(--soft)", strokeDasharray: "3 3" }),
        Plot.line(rows, { x: "epoch", y: "value", stroke: "var(--near)", strokeWidth: 2 }),
        Plot.ruleX(rows, Plot.pointerX({ x: "epoch", stroke: "var(--near)", maxRadius: Infinity })),
      ],
    });
    plot.addEventListener("pointermove", (event) => (plot.value ? showTip(`epoch ${plot.value.epoch}: ${text(plot.value.value)}`, event) : hideTip()));
    plot.addEventListener("pointerleave", hideTip);
    draw(where, plot, title);
    where.prepend(element("h3", {}, title));
  };
  line(left, effective, "Effective number of classes in the draw", [0, Math.max(1, d3.max(effective) ?? 1)], (x) => number(x, 1));
  line(right, current, "Part of the current task in the replay", [0, 1], (x) => percent(x));
}

// ---- tables -------------------------------------------------------------------------------------------------------

const LISTS = {
  risk: {
    empty: "No class declines steadily while its accuracy holds.",
    columns: { "accuracy": (r) => percent(r.accuracy), "should be below": (r) => percent(Math.max(0, r.falls_below)), "by epoch": (r) => String(r.expected_epoch),
      "+ctl per epoch": (r) => number(r.ctl_slope).replace("-", "−"), "+nkl per epoch": (r) => number(r.nkl_slope).replace("-", "−") },
  },
  decline: {
    empty: "No class of an earlier task kept its accuracy while its signals fell.",
    columns: { "accuracy": (r) => `${percent(r.accuracy[0])} → ${percent(r.accuracy[1])}`, "mean change": (r) => number(r.drift).replace("-", "−"),
      "+ctl": (r) => `${number(r.ctl[0], 2)} → ${number(r.ctl[1], 2)}`, "+nkl": (r) => `${number(r.nkl[0], 2)} → ${number(r.nkl[1], 2)}`,
      "+log_tlr": (r) => `${number(r.log_tlr[0], 2)} → ${number(r.log_tlr[1], 2)}` },
  },
  near: {
    empty: "No class is at 0 %.",
    columns: { "rank": (r) => number(r.rank, 1), "cm": (r) => number(r.cm, 2), "+log_tlr": (r) => number(r.log_tlr, 2), "ctl": (r) => number(r.ctl, 3), "+nkl": (r) => number(r.nkl, 2) },
  },
};
const SHORT = 10;

/** A column whose name starts with + is left out on a phone. */
function drawList(name, all = false) {
  const where = $(`[data-list="${name}"]`);
  const { empty, columns } = LISTS[name];
  const rows = run[name] ?? [];
  $(`#h-${name} [data-count]`).textContent = rows.length || "";
  if (name === "risk") $("#risk-check").textContent = run.check ?? "";
  if (!rows.length) return say(where, empty);
  const heads = Object.keys(columns);
  const kind = (head) => (head.startsWith("+") ? "num extra" : "num");
  const head = element("tr", {}, element("th", { scope: "col" }, "class"), ...heads.map((h) => element("th", { scope: "col", class: kind(h) }, h.replace("+", ""))));
  const body = (all ? rows : rows.slice(0, SHORT)).map((row) => {
    const open = element("button", { type: "button", class: "link", onclick: () => showClass(row.class) }, className(row.class));
    const about = element("span", { class: "n" }, `task ${(row.task ?? row.class_task) + 1}`);
    return element("tr", {}, element("th", { scope: "row" }, open, about), ...heads.map((h) => element("td", { class: kind(h) }, columns[h](row))));
  });
  const table = element("table", {}, element("thead", {}, head), element("tbody", {}, ...body));
  where.replaceChildren(element("div", { class: "scroll", role: "region", tabindex: "0", "aria-labelledby": `h-${name}` }, table));
  if (!all && rows.length > SHORT)
    where.append(element("p", { class: "foot" }, element("button", { type: "button", class: "link", onclick: () => drawList(name, true) }, `Show all ${rows.length}`)));
}

function drawSummary() {
  const signal = $("#summary-signal").value;
  const percents = signal === "accuracy";
  const text = ([mean, std, n], several) => {
    if (mean === null) return ["–"];
    const shape = (x) => (percents ? (100 * x).toFixed(1) : x.toFixed(3));
    return [shape(mean), " ", element("small", {}, std === null ? several ? `(${n})` : "" : `± ${shape(std)} (${n})`)];
  };
  for (const table of document.querySelectorAll("#summary table")) {
    const several = table.querySelector("th").textContent === "method";
    const rows = data.summary[signal][several ? "methods" : "runs"];
    const names = [...table.querySelectorAll("thead th")].slice(1).map((th) => th.textContent);
    [...table.tBodies[0].rows].forEach((tr, i) => names.forEach((name, j) => tr.cells[j + 1].replaceChildren(...text(rows[i][name], several))));
  }
  $("#summary .what").textContent = (percents ? "Accuracy in percent" : `${byName.get(signal).title}`) +
    " at the ends of tasks. Average: all tasks at the end. Forgetting: peak minus end, mean over old tasks. Retention: what old tasks still have. Plasticity: each task right after it was learnt.";
}

// ---- the page -----------------------------------------------------------------------------------------------------

const noCurves = () => run.epochs
  ? "The curves of this run are not embedded, to keep the page small: choose another run, or make a report of this one alone."
  : "Nothing was measured yet.";

function drawAll() {
  hideTip();
  drawCurves();
  drawMap();
  if (run.epochs) {
    drawConditional();
    drawSmoothness();
  } else ["conditional", "smoothness"].forEach((name) => say(chart(name), noCurves()));
  drawFlow();
  drawDraw();
}

async function choose(index) {
  const next = data.runs[index];
  if (next.curves && !next.values) {
    const all = await unpack(next.curves.bounded);
    const size = next.epochs * next.classes.length;
    const values = Object.fromEntries(bounded.map((name, i) => [name, all.subarray(i * size, (i + 1) * size)]));
    values.loss = await unpack(next.curves.loss);
    if (next.draw) next.draw.values = await unpack(next.draw.share);
    next.values = values;
  }
  run = next;
  $("#said").replaceChildren(...run.sentences.map((text) => element("li", {}, text)));
  $("#notes").replaceChildren(...run.notes.map((text) => element("p", {}, text)));
  $("#notes").hidden = !run.notes.length;
  $("#environment").replaceChildren(...Object.entries({ folder: run.path, method: run.method, seed: String(run.seed), ...run.environment })
    .flatMap(([term, text]) => [element("dt", {}, term), element("dd", {}, text)]));
  $("#toml").textContent = run.config;
  if (run.epochs) {
    fillWho();
    fillFlow();
  }
  document.querySelectorAll("#curves .controls, #map .controls").forEach((c) => (c.hidden = !run.values));
  $("#flow .controls").hidden = !run.flow || Boolean(run.missing.flow);
  Object.keys(LISTS).forEach((name) => drawList(name));
  drawAll();
  document.body.dataset.ready = index; // for tests, and for whoever prints the page
}

document.querySelectorAll(".swatch[data-signal]").forEach((i) => i.style.setProperty("--tone", colour(i.dataset.signal)));
$("#run").addEventListener("change", (event) => choose(Number(event.target.value)));
$("#who").addEventListener("change", drawCurves);
$("#which").addEventListener("change", drawCurves);
$("#map-signal").addEventListener("change", drawMap);
$("#flow-class").addEventListener("change", drawFlow);
$("#summary-signal").addEventListener("change", drawSummary);
chart("map").addEventListener("keydown", moveCell);
chart("map").addEventListener("click", () => run.values && !tip.hidden && showClass(run.classes[cell.i]));
addEventListener("scroll", hideTip, { passive: true });

let drawnFor = innerWidth;
addEventListener("resize", () => {
  if (innerWidth === drawnFor) return; // a phone's address bar comes and goes
  drawnFor = innerWidth;
  requestAnimationFrame(drawAll);
});
choose(0);
