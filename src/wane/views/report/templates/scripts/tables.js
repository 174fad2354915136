// The lists of classes, and the summary of all runs.

const LISTS = {
  risk: {
    empty: "No class is at risk.",
    columns: { "accuracy": (r) => percent(r.accuracy), "ctl": (r) => number(r.ctl, 3) },
  },
  decline: {
    empty: "No class of an earlier task kept its accuracy while its signals fell.",
    columns: { "accuracy": (r) => `${percent(r.accuracy[0])} → ${percent(r.accuracy[1])}`, "mean change": (r) => number(r.drift).replace("-", "−"),
      "ctl": (r) => `${number(r.ctl[0], 2)} → ${number(r.ctl[1], 2)}`, "nkl": (r) => `${number(r.nkl[0], 2)} → ${number(r.nkl[1], 2)}`,
      "log_tlr": (r) => `${number(r.log_tlr[0], 2)} → ${number(r.log_tlr[1], 2)}` },
  },
  near: {
    empty: "No class is at 0 %.",
    columns: { "rank": (r) => number(r.rank, 1), "cm": (r) => number(r.cm, 2), "log_tlr": (r) => number(r.log_tlr, 2), "ctl": (r) => number(r.ctl, 3), "nkl": (r) => number(r.nkl, 2) },
  },
};
const SHORT = 10;

function drawList(name, all = false) {
  const where = $(`[data-list="${name}"]`);
  const { empty, columns } = LISTS[name];
  const rows = run[name] ?? [];
  $(`#h-${name} [data-count]`).textContent = rows.length || "";
  if (name === "risk") $("#risk-check").textContent = run.check ?? "";
  if (!rows.length) return say(where, run.missing[name] ?? empty);
  const heads = Object.keys(columns);
  const head = element("tr", {}, element("th", { scope: "col" }, run.kind), ...heads.map((h) => element("th", { scope: "col", class: "num" }, h)));
  const body = (all ? rows : rows.slice(0, SHORT)).map((row) => {
    const open = element("button", { type: "button", class: "link", onclick: () => showClass(row.class) }, className(row.class));
    const about = element("span", { class: "n" }, `task ${(row.task ?? row.class_task) + 1}`);
    return element("tr", {}, element("th", { scope: "row" }, open, about), ...heads.map((h) => element("td", { class: "num", "data-label": h }, columns[h](row))));
  });
  const table = element("table", {}, element("thead", {}, head), element("tbody", {}, ...body));
  where.replaceChildren(element("div", { class: "scroll", role: "region", tabindex: "0", "aria-labelledby": `h-${name}` }, table));
  if (!all && rows.length > SHORT)
    where.append(element("p", { class: "foot" }, element("button", { type: "button", class: "link", onclick: () => drawList(name, true) }, `Show all ${rows.length}`)));
}

function drawSummary() {
  const signal = $("#summary-signal").value;
  const setting = $("#summary-setting")?.value ?? Object.keys(data.summary)[0];
  const percents = signal === "accuracy";
  const text = ([mean, std, n], several) => {
    if (mean === null) return ["–"];
    const shape = (x) => (percents ? (100 * x).toFixed(1) : x.toFixed(3)).replace("-", "−");
    return [shape(mean), " ", element("small", {}, std === null ? several ? `(${n})` : "" : `± ${shape(std)} (${n})`)];
  };
  for (const table of document.querySelectorAll("#summary table")) {
    const several = table.querySelector("th").textContent === "method";
    const rows = data.summary[setting][signal][several ? "methods" : "runs"];
    [...table.tBodies[0].rows].forEach((tr, i) => data.columns.forEach(({ name }, j) => tr.cells[j + 1].replaceChildren(...text(rows[i][name], several))));
  }
  const first = (title) => title[0].toUpperCase() + title.slice(1);
  $("#summary .what").textContent = (percents ? "Accuracy in percent" : byName.get(signal).title) +
    (setting === "task" ? ", task-incremental: each row among the classes of its own task" : "") +
    (setting === "corrected" ? ", with offsets added to the logits, as record.correction of each run says" : "") +
    "; a task's value is the mean over its samples. " + data.columns.map(({ title, description }) => `${first(title)}: ${description}`).join(" ");
}
