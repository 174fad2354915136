// Where the accuracy went: stacked bars of what is kept and what each remedy would bring back.

/** Bars lie on their side, so that names of methods have room, also on a phone. */
function drawLadder(figure, bars, label) {
  const parts = data.ladder.parts; // [{ name, title }], from the bottom up
  const segments = [], inside = [];
  for (const bar of bars) {
    let reached = 0;
    for (const { name, title } of parts) {
      const level = bar.levels[name];
      if (!level) continue;
      if (level.mean > reached) segments.push({ label: bar.label, name, title, x1: reached, x2: level.mean });
      else inside.push({ label: bar.label, name, x: level.mean });
      reached = Math.max(reached, level.mean);
    }
  }
  const there = parts.filter(({ name }) => bars.some((bar) => bar.levels[name]));
  const crossed = (s) => inside.some((i) => i.label === s.label && Math.abs(i.x - (s.x1 + s.x2) / 2) < 2.5);
  const left = Math.min(190, 24 + 7 * Math.max(...bars.map((b) => Math.min(24, b.label.length))));
  const room = (width(figure) - left - 16) / 100; // pixels of a point
  const written = (s) => ((s.x2 - s.x1) * room < 30 || crossed(s) ? "" : s.name === "now" ? s.x2.toFixed(0) : `+${(s.x2 - s.x1).toFixed(0)}`);
  const ranges = bars.flatMap((bar) => there.filter(({ name }) => bar.levels[name]?.low != null).map(({ name }) => ({ label: bar.label, ...bar.levels[name] })));
  const of = (key) => bars.filter((bar) => bar[key] !== null);
  const tall = 34;
  const plot = Plot.plot({
    width: width(figure), height: tall * bars.length + 58, marginLeft: left, marginRight: 16,
    x: { domain: [0, 100], label: "accuracy (%)", grid: true, ticks: 5 },
    y: { domain: bars.map((b) => b.label), label: null, tickFormat: (t) => short(t, 24), tickSize: 0 },
    marks: [
      Plot.barX(segments, { x1: "x1", x2: "x2", y: "label", fill: (s) => `var(--l-${s.name})`, insetTop: 3, insetBottom: 3, title: (s) => `${s.title}: ${(s.x2 - s.x1).toFixed(1)} points` }),
      Plot.text(segments, { x: (s) => (s.x1 + s.x2) / 2, y: "label", text: written, fill: (s) => ({ now: "white", head: "white", bias: "#111" }[s.name] ?? "var(--l-text)"), fontSize: 12 }),
      Plot.tickX(inside, { x: "x", y: "label", stroke: "white", strokeWidth: 3, insetTop: 3, insetBottom: 3 }),
      Plot.tickX(inside, { x: "x", y: "label", stroke: (s) => `var(--l-${s.name})`, strokeWidth: 1.5, insetTop: 0, insetBottom: 0 }),
      Plot.link(ranges, { x1: "low", x2: "high", y1: "label", y2: "label", stroke: "var(--ink)", strokeWidth: 1 }),
      Plot.dot(of("oracle"), { x: "oracle", y: "label", r: 4, symbol: "diamond", fill: "var(--l-bias)", stroke: "white" }),
      Plot.tickX(of("joint"), { x: "joint", y: "label", stroke: "var(--ink)", strokeWidth: 1.5, strokeDasharray: "4 2", insetTop: -3, insetBottom: -3 }),
      Plot.dot(of("learnt"), { x: "learnt", y: "label", r: 3.5, stroke: "var(--soft)", strokeWidth: 1.5, fill: "none" }),
    ],
  });
  draw(figure, plot, label);
  const key = (tone, text, kind = "box") => element("span", { class: `key ${kind}`, style: `--tone:${tone}` }, text);
  figure.append(element("p", { class: "keys" },
    ...there.map(({ name, title }) => key(`var(--l-${name})`, title)),
    ...(of("oracle").length ? [key("var(--l-bias)", "the best number (an oracle)", "diamond")] : []),
    ...(of("joint").length ? [key("var(--ink)", "joint training", "dash")] : []),
    ...(of("learnt").length ? [key("var(--soft)", "right after learning", "ring")] : [])));
}

function drawLadders() {
  if (!data.ladder) return;
  const { ladder } = run;
  if (ladder) drawLadder(chart("ladder"), ladder.bars, "what is kept and what each remedy would bring back, by task");
  else say(chart("ladder"), "Where the accuracy went was not recorded in this run: run with --set record.ladder=true.");
  $("#ladder-notes").textContent = ladder ? ladder.notes.join(" ") : "";
  for (const which of ["old", "all"]) {
    const figure = chart(`ladder-${which}`);
    if (figure) drawLadder(figure, data.ladder[which], `methods side by side: ${which} tasks`);
    if (figure) figure.prepend(element("h3", {}, which === "old" ? "Old tasks, by method" : "All tasks, by method"));
  }
}
