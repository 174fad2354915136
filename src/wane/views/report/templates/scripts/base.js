"use strict";
// What the other scripts stand on; `page.js`, the last, begins. They are one script in the page, in the order of SCRIPTS
// in page.py. Data: the element #data; drawing: Observable Plot (and d3, on which it stands).
// Every text, class names above all, reaches the page as text (textContent, SVG text), never as HTML.

const data = JSON.parse(document.getElementById("data").textContent);
const byName = new Map(data.signals.map((s) => [s.name, s]));
const bounded = data.signals.filter((s) => s.bounded).map((s) => s.name);
const isBounded = (signal) => byName.get(signal).bounded;
const $ = (selector) => document.querySelector(selector);
const chart = (name) => $(`[data-chart="${name}"]`);
const colour = (signal) => `var(--s-${signal})`;
const taskColour = (task) => data.tasks[task % data.tasks.length];
const percent = (x, digits = 1) => (x === null || !isFinite(x) ? "–" : `${(100 * x).toFixed(digits)} %`);
const number = (x, digits = 3) => (x === null || !isFinite(x) ? "–" : x.toFixed(digits));
const shown = (signal, x) => (signal === "accuracy" ? percent(x) : number(x));
const short = (text, most) => ([...text].length > most ? `${[...text].slice(0, most - 1).join("")}…` : text);
const ruler = document.createElement("canvas").getContext("2d");
/** As much of a text as fits into so many pixels. */
function fit(text, room, size) {
  ruler.font = `${size}px ${getComputedStyle(document.body).fontFamily}`;
  const letters = [...text];
  if (ruler.measureText(text).width <= room) return text;
  while (letters.length && ruler.measureText(`${letters.join("")}…`).width > room) letters.pop();
  return `${letters.join("")}…`;
}

let run; // what is shown: an entry of data.runs, with `values`, (signal) -> Float32Array of epochs x classes

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

/** Inverse of `pack` in pack.py: differences in time, low bytes then high bytes, deflated, base64. */
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

const className = (c) => (run.names[c] ?? String(c)).replace(/\s+/g, " "); // a line break would be two lines in a chart
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
