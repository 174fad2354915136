// The signals of some classes over time.

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
  // A signal without an upper bound is divided by its greatest value, to share the axis.
  const most = Object.fromEntries(signals.map((s) => [s, isBounded(s) ? 1 : Math.max(1, d3.max(rows, (r) => r[s] + r[`${s} std`]) || 1)]));
  const scale = (signal) => 1 / most[signal];
  const label = (signal) => (most[signal] > 1 ? `${signal} ÷ ${most[signal].toFixed(1)}` : signal);
  const height = Math.min(420, Math.max(260, width(figure) * 0.45));
  const ends = spread(signals.map((signal) => {
    const last = rows.findLast((r) => isFinite(r[signal]));
    return last && { signal, x: last.epoch, y: last[signal] * scale(signal) };
  }).filter(Boolean), 14 / (height - 60));
  const wide = $("#who").value.startsWith("task");
  const band = wide && run.class_task.filter((task) => `task ${task}` === $("#who").value).length > 2; // of two, it fills the box
  const plot = Plot.plot({
    width: width(figure), height, marginRight: 76, marginTop: 26, marginBottom: 34,
    x: { label: run.time, domain: [0.5, run.epochs + 0.5], ticks: Math.min(run.epochs, 10), tickFormat: "d" },
    y: { domain: [0, 1], label: null, grid: true, ticks: 5 },
    marks: [
      Plot.ruleX(boundaries(), { x: "at", stroke: "var(--soft)", strokeDasharray: "3 3" }),
      Plot.text(boundaries(), { x: "at", text: (b) => `task ${b.task + 1}`, frameAnchor: "top", dy: -14, fill: "var(--soft)" }),
      band ? signals.map((s) => Plot.areaY(rows, {
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
    showTip([`${run.time} ${row.epoch}, task ${row.task + 1}`, ...lines].join("\n"), event);
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
