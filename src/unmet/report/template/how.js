// Data and methods: data, rejected rows, minutes by state, model, fits, extrapolation, assumptions.

const STATE_TONES = { available: "demand", stockout: "lost", closed: "muted", unknown: "line" };
const STATE_NAMES = { available: "available", stockout: "out of stock", closed: "closed", unknown: "unknown" };
const FLAG_WORDS = {
  extrapolation: "in hours of the week that never had supply: these estimates are extrapolated",
  "covariate-missing": "without weather data: the usual weather of the season and hour was used",
  unknown: "in an unknown state throughout",
  closed: "closed throughout",
  future: "without trip records",
};
const MOST_LISTED = 30;

function buildHow() {
  const how = data.how;
  byId("how-body").append(
    _block("Data used", _facts(how.data)),
    _block("Time by state", _states(how.states)),
    ...(how.supply.facts.length ? [_block("Listed vehicles that nobody can rent", ..._supply(how.supply))] : []),
    _block("Model", _facts(how.model)),
    ...(how.city.length ? [_block("The city as one", _facts(how.city))] : []),
    _block("Rejected, repaired and noted rows", _quality(how.quality)),
    _block("Fits", ..._fits()),
    _block("Extrapolation and gaps", _flags(how.flags)),
    _block("Assumptions", _list(how.assumptions)),
    ...(how.notes.length ? [_block("Notes on the run", _list(how.notes))] : [])
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
        cellOf("td", {}, `${number(row.hours)} h`, row.hours), cellOf("td", {}, percent(row.share), row.share), element("td", { class: "text" }, row.why))
    );
  }
  return element("div", {}, bar, element("table", {}, element("caption", { class: "unseen" }, "Zone-hours by state"), body));
}

function _supply(supply) {
  const cells = (kind, values, first = { scope: "row", class: "text" }) =>
    element("tr", {}, element("th", first, values[0]), ...values.slice(1).map((value) => (Array.isArray(value) ? cellOf(kind, {}, ...value) : element(kind, {}, value))));
  const curve = element("table", {}, element("caption", {}, "Pickups over those expected at the hour, by vehicles listed"),
    element("thead", {}, cells("th", ["vehicles listed", "if all can be rented", "by the model"], { scope: "col", class: "text" })),
    element("tbody", {}, ...supply.curve.map(([listed, ...worth]) => cells("td", [String(listed), ...worth.map((value) => [value.toFixed(2), value])]))));
  const learnt = supply.curve.length ? [curve, _facts(supply.facts)] : [_facts(supply.facts)];
  if (!supply.stations.length) return [...learnt, element("p", {}, "At the end of the records no station very probably lists such vehicles.")];
  const rows = supply.stations.map(([name, listed, broken, probability, since]) =>
    cells("td", [element("bdi", {}, name), [String(listed), listed], [broken.toFixed(1), broken], [percent(probability), probability], since.slice(0, 16)]));
  const stations = element("table", {}, element("caption", {}, "Stations that very probably list such vehicles at the end of the records"),
    element("thead", {}, cells("th", ["station", "listed", "expected number", "probability", "since"], { scope: "col", class: "text" })),
    element("tbody", {}, ...rows));
  return [...learnt, stations];
}

function _quality(rows) {
  if (!rows.length) return element("p", {}, "No rows were rejected, repaired or noted, or the panel does not record them.");
  const body = element("tbody");
  for (const [action, source, reason, count, share, detail] of rows) {
    body.append(
      element("tr", {},
        element("th", { scope: "row", class: "text" }, element("span", { class: `badge ${action}` }, action), ` ${source}: ${reason}`),
        cellOf("td", {}, number(count), count), cellOf("td", {}, percent(share), share), element("td", { class: "text muted" }, detail))
    );
  }
  return element("table", {}, element("caption", { class: "unseen" }, "Rejected, repaired and noted rows"), body);
}

function _fits() {
  const all = zones.zone.map((_, i) => i);
  const bad = all.filter(failed);
  const loose = all.filter((i) => zones.converged[i] === false);
  const remarked = all.filter((i) => !failed(i) && zones.converged[i] !== false && zones.message[i]);
  const parts = [element("p", {}, `${all.length - bad.length} of ${counted(all.length, "zone")} estimated` + (bad.length ? `. ${bad.length} could not be estimated and ${bad.length === 1 ? "is" : "are"} not in the totals.` : "."))];
  const listed = (title, some, why) => {
    if (!some.length) return;
    const lines = some.slice(0, MOST_LISTED).map((i) => element("li", {}, element("bdi", {}, zones.name[i]), why(i) ? `: ${why(i)}` : ""));
    if (some.length > MOST_LISTED) lines.push(element("li", {}, `and ${some.length - MOST_LISTED} more, listed in the exported tables`));
    parts.push(element("details", some.length <= 5 ? { open: "" } : {}, element("summary", {}, title), element("ul", {}, ...lines)));
  };
  listed(`${bad.length} could not be estimated`, bad, whyFailed);
  listed(`${loose.length} did not converge: these estimates are less reliable`, loose, (i) => zones.message[i]);
  listed(`${remarked.length} with a remark`, remarked, (i) => zones.message[i]);
  if (!loose.length) parts.push(element("p", {}, "All estimates converged."));
  return parts;
}

function _flags(flags) {
  const lines = Object.keys(FLAG_WORDS).filter((word) => flags[word]).map((word) => {
    const [bins, count] = flags[word];
    return `${counted(bins, "zone-bin")} (${counted(count, "zone")}) ${FLAG_WORDS[word]}.`;
  });
  if (!flags.extrapolation) lines.unshift("Every estimated zone had supply in every hour of the week: nothing is extrapolated.");
  return _list(lines);
}
