// Every class at every epoch.

/** Classes x epochs; `values` is epochs x classes. Calls `point(epoch, k, event)` where the pointer is, or with null. */
function heatMap(figure, values, { epochs, columns, tasks, domain, reverse, label, legend, point, diverging = false, tickFormat }) {
  const k = columns.length;
  const grid = new Float32Array(epochs * k); // Plot wants row by row: class by class
  for (let e = 0; e < epochs; e++) for (let i = 0; i < k; i++) grid[i * epochs + e] = values[e * k + i];
  const starts = d3.range(1, epochs).filter((e) => tasks[e] !== tasks[e - 1]);
  const groups = d3.groups(d3.range(k), (i) => run.class_task[i]).map(([task, rows]) => ({ task, from: rows[0], to: rows.at(-1) + 1 }));
  const named = k <= 40;
  const plot = Plot.plot({
    width: width(figure), height: Math.min(640, Math.max(160, k * (named ? 14 : 5) + 40)), marginLeft: named ? 96 : 56, marginRight: 6, marginBottom: 36,
    x: { domain: [0.5, epochs + 0.5], label: run.time, ticks: Math.min(epochs, 10), tickFormat: "d" },
    y: { domain: [k, 0], axis: null },
    color: diverging ? { type: "diverging", scheme: "PuOr", pivot: 0, domain, reverse, clamp: true, label: legend }
      : { scheme: data.sequential, domain, reverse, clamp: true, label: legend },
    marks: [
      Plot.raster(grid, { width: epochs, height: k, x1: 0.5, x2: epochs + 0.5, y1: 0, y2: k, imageRendering: "pixelated" }),
      Plot.ruleX(starts, { x: (e) => e + 0.5, stroke: "var(--card)", strokeWidth: 1 }),
      Plot.ruleY(groups.slice(1), { y: "from", stroke: "var(--card)", strokeWidth: 1 }),
      named
        ? Plot.text(columns, { x: 0.5, y: (c, i) => i + 0.5, text: (c) => fit(className(c), 88, 11), textAnchor: "end", dx: -6, fontSize: 11 })
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
  const key = Plot.legend({ color: plot.scale("color"), label: legend, width: Math.min(260, width(figure)), height: 44, marginLeft: 12, marginRight: 12, ...(tickFormat && { ticks: domain[1] - domain[0], tickFormat }) });
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
  const head = `${className(run.classes[i])}, ${run.time} ${epoch + 1} (${run.kind} of task ${run.class_task[i] + 1}, during task ${run.tasks[epoch] + 1})`;
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
    domain: signal.bounded ? [0, 1] : [0, d3.quantile(values.filter(isFinite), 0.98) || 1],
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
