// What classes of equal accuracy differ in, and how smoothly each signal moves.

function drawConditional() {
  const where = chart("conditional");
  const levels = d3.groups(run.conditional, (row) => row.level);
  if (!levels.length) return say(where, "Accuracy alone was recorded: there is no other signal to look at.");
  where.replaceChildren(...levels.map(([level, rows]) => {
    const figure = element("figure", { class: "card" });
    figure.append(element("h3", {}, `${100 * level} % accuracy `, element("small", {}, `n = ${rows[0].n.toLocaleString("en")}`)));
    return figure;
  }));
  levels.forEach(([level, rows], i) => {
    const figure = where.children[i];
    if (!rows[0].n) return figure.append(element("p", { class: "none" }, `No ${run.kind} was at this accuracy: with ${Math.round(d3.median(run.images))} test samples a ${run.kind} it moves in steps of ${(100 / d3.median(run.images)).toFixed(1)} points.`));
    // Of fewer observations a density would make up a shape.
    const bins = rows.filter((row) => row.n >= 5).flatMap((row) => {
      const top = d3.max(row.density);
      return row.density.map((d, j) => ({ signal: row.signal, x: (j + 0.5) / row.density.length, d: d / top }));
    });
    const plot = Plot.plot({
      width: width(figure), height: 250, marginLeft: 54, marginBottom: 30, marginRight: 8, marginTop: 4,
      x: { domain: [0, 1], label: null, ticks: 5 }, y: { axis: null, domain: [-1.1, 1.1] },
      fy: { domain: bounded.filter((name) => name !== "accuracy"), label: null, axis: "left", padding: 0.08 }, color: { type: "identity" },
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
    x: { label: `absolute change from ${run.time} to ${run.time}`, grid: true, nice: true, zero: true }, y: { domain: ["transition", "stable"], axis: null, padding: 0.25 },
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
  figure.append(element("p", { class: "foot" }, `Transition: ${run.around} ${run.time}${run.around === 1 ? "" : "s"} on either side of the start of a task. ` +
    `n = ${n("transition").toLocaleString("en")} in transition, ${n("stable").toLocaleString("en")} stable; a dot is the greatest change.`));
}
