// How it was done: data, rejected rows, minutes by state, model, fits, extrapolation, assumptions.

const STATE_TONES = { available: "demand", stockout: "lost", closed: "muted", unknown: "line" };
const STATE_NAMES = { available: "available", stockout: "out of stock", closed: "closed", unknown: "unknown" };
const FLAG_WORDS = {
  extrapolation: "in hours of the week that were never seen with supply: their estimates are extrapolation",
  "covariate-missing": "with a gap in the weather, filled with its median",
  unknown: "of which nothing is known",
  closed: "closed throughout",
  future: "without any record of trips",
};
const MOST_LISTED = 30;

function buildHow() {
  const how = data.how;
  byId("how-body").append(
    _block("Data used", _facts(how.data)),
    _block("Minutes by state", _states(how.states)),
    _block("Model", _facts(how.model)),
    _block("Rows rejected, repaired and noted", _quality(how.quality)),
    _block("Fits", ..._fits()),
    _block("Extrapolation and gaps", _flags(how.flags)),
    _block("Assumptions", _list(how.assumptions)),
    ...(how.notes.length ? [_block("Notes of the run", _list(how.notes))] : [])
  );
}

const _block = (title, ...content) => element("section", {}, element("h3", {}, title), ...content);
const _list = (lines) => element("ul", {}, ...lines.map((line) => element("li", {}, line)));

function _facts(pairs) {
  const list = element("dl", { class: "facts" });
  for (const [name, value] of pairs) list.append(element("dt", {}, name), element("dd", {}, value));
  return list;
}

function _states(rows) {
  const bar = element("div", { class: "stack", "aria-hidden": "true" });
  const body = element("tbody");
  for (const row of rows) {
    const tone = `background:var(--${STATE_TONES[row.state]})`;
    if (row.share > 0) bar.append(element("i", { style: `${tone};flex:${row.share}` }));
    body.append(
      element("tr", {},
        element("th", { scope: "row", class: "text" }, element("i", { class: "key", style: tone }), STATE_NAMES[row.state]),
        element("td", {}, `${number(row.hours)} h`), element("td", {}, percent(row.share)), element("td", { class: "text" }, row.why))
    );
  }
  return element("div", {}, bar, element("table", {}, element("caption", { class: "unseen" }, "Zone-hours by state"), body));
}

function _quality(rows) {
  if (!rows.length) return element("p", {}, "Nothing was rejected, repaired or noted; or the panel does not tell.");
  const body = element("tbody");
  for (const [action, source, reason, count, share, detail] of rows) {
    body.append(
      element("tr", {},
        element("th", { scope: "row", class: "text" }, element("span", { class: `badge ${action}` }, action), ` ${source}: ${reason}`),
        element("td", {}, number(count)), element("td", {}, percent(share)), element("td", { class: "text muted" }, detail))
    );
  }
  return element("table", {}, element("caption", { class: "unseen" }, "Rows rejected, repaired and noted"), body);
}

function _fits() {
  const all = zones.zone.map((_, i) => i);
  const bad = all.filter(failed);
  const loose = all.filter((i) => zones.converged[i] === false);
  const told = all.filter((i) => !failed(i) && zones.converged[i] !== false && zones.message[i]);
  const parts = [element("p", {}, `${all.length - bad.length} of ${counted(all.length, "zone")} estimated` + (bad.length ? `; ${bad.length} could not be, and ${bad.length === 1 ? "is" : "are"} in no total.` : "."))];
  const listed = (title, some, why) => {
    if (!some.length) return;
    const lines = some.slice(0, MOST_LISTED).map((i) => element("li", {}, element("bdi", {}, zones.name[i]), why(i) ? `: ${why(i)}` : ""));
    if (some.length > MOST_LISTED) lines.push(element("li", {}, `and ${some.length - MOST_LISTED} more; all are in the exported tables`));
    parts.push(element("details", some.length <= 5 ? { open: "" } : {}, element("summary", {}, title), element("ul", {}, ...lines)));
  };
  listed(`${bad.length} could not be estimated`, bad, whyFailed);
  listed(`${loose.length} did not converge: believe them less`, loose, (i) => zones.message[i]);
  listed(`${told.length} with a remark`, told, (i) => zones.message[i]);
  if (!loose.length) parts.push(element("p", {}, "All estimates converged."));
  return parts;
}

function _flags(flags) {
  const lines = Object.keys(FLAG_WORDS).filter((word) => flags[word]).map((word) => {
    const [bins, count] = flags[word];
    return `${counted(bins, "zone-bin")} (${counted(count, "zone")}) ${FLAG_WORDS[word]}.`;
  });
  if (!flags.extrapolation) lines.unshift("Every hour of the week was seen with supply in every zone estimated: nothing is extrapolated.");
  return _list(lines);
}
