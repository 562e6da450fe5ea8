// Words, trust at a glance, tables to take along, and a link that opens the same view.

const WORDS = [
  ["Observed", "trips that were recorded"],
  ["Demand (wanted)", "riders who came to a zone first, served or not"],
  ["Served", "riders who came to a zone and rented there"],
  ["Walked on", "riders who found a zone empty and were served at one nearby"],
  ["Lost", "riders who found a zone open but empty and were served nowhere"],
  ["Rate", "riders expected in a bin with something to rent all the time: the number to plan with"],
  ["Out of stock", "open, with nothing to rent"],
  ["Risk", "chance that a rider who comes finds nothing"],
  ["Zone", "a station, or several stations taken as one place"],
  ["Bin", "the stretch of time that is counted together, by the local clock"],
  ["90% interval", "the truth is inside in nine of ten such cases, if model and records are right"],
  ["Left out", "a zone whose records or estimates are not believed: shown, but in no total"],
];

function buildWords() {
  byId("words").querySelector("dl").append(...WORDS.flatMap(([word, meaning]) => [element("dt", {}, word), element("dd", {}, meaning)]));
}

function buildChecks() {
  const bad = data.checks.filter((check) => !check.good);
  const summary = byId("checks-summary");
  summary.className = bad.length ? "care" : "good";
  summary.textContent = data.checks_line;
  byId("checks-list").append(
    ...data.checks.map((check) => element("li", { class: check.good ? "good" : "care" }, check.sentence))
  );
  byId("doubts").querySelector("ul").append(...data.doubts.map((text) => element("li", {}, text)));
}

/** A cell for CSV: numbers plain, texts quoted and inert in spreadsheets, which take = + - @ at their start for a formula. */
function _csvCell(value) {
  if (!known(value)) return "";
  if (typeof value === "number") return String(Number(value.toPrecision(9)));
  const plain = value.trim();
  const inert = /^[=+\-@\t\r]/.test(plain) ? `'${plain}` : plain;
  return `"${inert.replaceAll('"', '""')}"`;
}

/** The cells of a table, by the values behind their texts where they have some. */
function _csvOf(table) {
  return [...table.rows].map((line) => [...line.cells].flatMap((cell) => cell.values || [cell.textContent]).map(_csvCell).join(",")).join("\r\n");
}

/** A button at the heading of each table. */
function addDownloads() {
  for (const table of document.querySelectorAll("main table")) {
    const heads = [...table.closest("section").querySelectorAll(".bar, h3")];
    const head = heads.filter((one) => one.compareDocumentPosition(table) & Node.DOCUMENT_POSITION_FOLLOWING).at(-1);
    const name = (head.querySelector("h2, h3") || head).textContent;
    const button = element("button", { type: "button", class: "download", title: `Download this table as CSV: ${name}` }, "CSV");
    button.addEventListener("click", () => {
      const file = new Blob(["\ufeff", _csvOf(table)], { type: "text/csv" });
      const link = element("a", { href: URL.createObjectURL(file), download: `${name.toLowerCase().replace(/[^a-z0-9]+/g, "-")}.csv` });
      link.click();
      URL.revokeObjectURL(link.href);
    });
    head.append(button);
  }
}

/** The view that the address names: #zone=id&area=…&days=…&part=…&from=2024-03-04&to=2024-03-11. */
function stateInAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  const one = (name, allowed) => (allowed.includes(given.get(name)) ? given.get(name) : null);
  const day = (name) => Date.parse(`${given.get(name)}T00:00Z`);
  return {
    zone: given.has("zone") ? zones.zone.indexOf(given.get("zone")) : EVERY,
    choice: { area: one("area", data.story.areas), days: one("days", data.story.days), part: one("part", Object.keys(data.story.parts)) },
    window: day("to") > day("from") ? [day("from"), day("to")] : null,
  };
}

function keepInAddress() {
  const state = new URLSearchParams();
  if (shown.zone !== EVERY) state.set("zone", zones.zone[shown.zone]);
  for (const name of ["area", "days", "part"]) if (chosen[name] !== null) state.set(name, chosen[name]);
  if (shown.moved) for (const name of ["from", "to"]) state.set(name, new Date(shown[name]).toISOString().slice(0, 10));
  try {
    history.replaceState(null, "", state.size ? `#${state}` : location.pathname + location.search);
  } catch {
    // Some browsers refuse this for files opened from disk; the page works without it.
  }
}
