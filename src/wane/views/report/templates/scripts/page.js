// Which run is shown, and what a reader does.

const noCurves = () => run.epochs
  ? "The curves of this run are not embedded, to keep the page small: choose another run, or make a report of this one alone."
  : "Nothing was measured yet.";

function drawAll() {
  hideTip();
  drawLadders();
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
    const unknown = new Float32Array(size).fill(NaN); // a signal that only other runs recorded
    const values = Object.fromEntries(data.signals.map((s) => [s.name, unknown]));
    next.curves.names.forEach((name, i) => (values[name] = all.subarray(i * size, (i + 1) * size)));
    for (const [name, packed] of Object.entries(next.curves.others)) values[name] = await unpack(packed);
    if (next.draw) next.draw.values = await unpack(next.draw.share);
    next.values = values;
  }
  run = next;
  $("#said").replaceChildren(...run.sentences.map((text) => element("li", {}, text)));
  $("#notes").replaceChildren(...run.notes.map((text) => element("p", {}, text)));
  $("#notes").hidden = !run.notes.length;
  $("#environment").replaceChildren(...Object.entries({ folder: run.path, method: run.method, ...(run.seed === null ? {} : { seed: String(run.seed) }), ...run.environment })
    .flatMap(([term, text]) => [element("dt", {}, term), element("dd", {}, text)]));
  $("#toml").textContent = run.config;
  $("#toml-is").textContent = run.own ? "What its owner said of it" : "The complete config, ready to be run again";
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
$("#summary-setting")?.addEventListener("change", drawSummary);
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
