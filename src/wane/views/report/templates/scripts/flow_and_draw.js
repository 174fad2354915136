// Where the probability of a class went, and who was replayed.

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
    y: { domain: takers.map((t) => t.c), label: null, tickFormat: (c) => fit(className(c), 100, 12), tickSize: 0 }, color: { type: "identity" },
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
  // A power of two either way looks equally far from an even share; no row at all is below the scale, not off it.
  const powers = relative.map((times) => Math.max(-3, Math.log2(times)));
  const times = (power) => ({ "-2": "¼", "-1": "½" })[power] ?? String(2 ** power);
  heatMap(figure, powers, {
    epochs, columns: run.classes.slice(0, k), tasks: task, domain: [-2, 2], legend: "times an even share", reverse: false, diverging: true, tickFormat: times,
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
      width: width(where), height: 190, marginLeft: 40, marginBottom: 36, x: { label: "epoch", domain: [0.5, epochs + 0.5], ticks: Math.min(epochs, 8), tickFormat: "d" }, y: { label: null, grid: true, domain, ticks: 5 },
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
