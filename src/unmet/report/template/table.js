// A table that sorts by its headers and moves by arrow keys.

/**
 * @param {HTMLElement} place where it goes
 * @param {string} caption what it is, for those who do not see it
 * @param {Array} columns {key, label, value(row), show(row), text, bar(row), csv(row), heads}: `text` sorts as text and
 *   stands left; `csv` gives the cells of the row in a CSV file, below `heads`, if that is not the value
 * @param {Array} rows numbers that the columns' functions take
 * @param {Function} choose called with the zone of the row that was chosen
 * @param {Function} zoneOf the zone of a row
 * @param {string} first key of the column to sort by, highest first
 * @param {Function} wanted whether a row is shown
 * @param {string} none what to say if no row is
 */
function sortableTable({ place, caption, columns, rows, choose, zoneOf, first, wanted = () => true, none = "There is nothing to list." }) {
  const state = { key: first, down: true, wanted, marked: null };
  const head = element("tr");
  const body = element("tbody");
  const table = element("table", { class: columns.length > 7 ? "many" : null }, element("caption", { class: "unseen" }, caption), element("thead", {}, head), body);
  const empty = element("p", { class: "message", hidden: "" }, none);
  let lines = new Map(); // of rows that were shown: most of a long table never are

  for (const column of columns) {
    const button = element("button", { type: "button" }, column.label, element("span", { class: "arrow", "aria-hidden": "true" }));
    button.addEventListener("click", () => {
      state.down = state.key === column.key ? !state.down : !column.text;
      state.key = column.key;
      refresh();
    });
    column.head = element("th", { scope: "col", class: column.text ? "text" : null, title: column.hint }, button);
    column.head.values = column.heads || [column.label];
    head.append(column.head);
  }

  function _line(row) {
    const line = element("tr", { "data-zone": zoneOf(row) });
    columns.forEach((column, k) => {
      const content = column.show(row);
      const cell = element(k === 0 ? "th" : "td", { scope: k === 0 ? "row" : null, class: column.text ? "text" : null });
      if (k === 0) {
        const button = element("button", { type: "button", tabindex: -1, class: "zone", title: content }, element("bdi", {}, content));
        button.addEventListener("keydown", _move);
        cell.append(button);
      } else {
        cell.append(content);
      }
      cell.values = column.csv ? column.csv(row) : [column.value(row)];
      if (column.bar) {
        cell.classList.add("with-bar");
        cell.style.setProperty("--share", column.bar(row));
      }
      line.append(cell);
    });
    line.addEventListener("click", () => choose(zoneOf(row)));
    _mark(line);
    return line;
  }

  function _lineOf(row) {
    if (!lines.has(row)) lines.set(row, _line(row));
    return lines.get(row);
  }

  function _mark(line) {
    const is = state.marked !== null && Number(line.dataset.zone) === state.marked;
    line.classList.toggle("chosen", is);
    if (is) line.setAttribute("aria-current", "true");
    else line.removeAttribute("aria-current");
    return is;
  }

  function _move(event) {
    const steps = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" };
    const line = event.currentTarget.closest("tr");
    const next = { Home: line.parentElement.firstElementChild, End: line.parentElement.lastElementChild }[event.key];
    const target = next || (steps[event.key] && line[steps[event.key]]);
    if (!target) return;
    event.preventDefault();
    _reach(target);
    target.querySelector("button").focus();
  }

  /** Only one row is met by the Tab key; arrows reach the others. */
  function _reach(line) {
    for (const button of body.querySelectorAll("button[tabindex='0']")) button.setAttribute("tabindex", -1);
    if (line) line.querySelector("button").setAttribute("tabindex", 0);
  }

  function refresh() {
    const column = columns.find((c) => c.key === state.key);
    const sign = state.down ? -1 : 1;
    const compare = (a, b) => {
      const [x, y] = [column.value(a), column.value(b)];
      if (!known(x) || !known(y)) return known(x) ? -1 : known(y) ? 1 : a - b; // what is missing comes last
      const order = column.text ? x.localeCompare(y, undefined, { numeric: true }) : x - y;
      return sign * order || a - b;
    };
    const shown = rows.filter(state.wanted).sort(compare);
    body.replaceChildren(...shown.map(_lineOf));
    table.hidden = !shown.length;
    empty.hidden = shown.length > 0;
    for (const c of columns) {
      const sorted = c.key === state.key;
      c.head.setAttribute("aria-sort", sorted ? (state.down ? "descending" : "ascending") : "none");
      c.head.querySelector(".arrow").textContent = sorted ? (state.down ? "▼" : "▲") : "";
    }
    _reach(body.querySelector("tr.chosen") || body.firstElementChild);
    return shown;
  }

  place.append(table, empty);
  refresh();
  return {
    rebuild(wanted = state.wanted) {
      const held = body.contains(document.activeElement) ? document.activeElement.closest("tr").dataset.zone : null;
      state.wanted = wanted;
      lines = new Map();
      const shown = refresh();
      const line = held && body.querySelector(`tr[data-zone='${held}']`);
      if (line) {
        _reach(line);
        line.querySelector("button").focus();
      }
      return shown;
    },
    filter(wanted) {
      state.wanted = wanted;
      return refresh();
    },
    mark(zone) {
      let seen = null;
      state.marked = zone;
      for (const line of lines.values()) {
        if (_mark(line) && !seen && line.isConnected) seen = line;
      }
      if (seen) {
        _reach(seen);
        const [box, frame] = [seen.getBoundingClientRect(), place.getBoundingClientRect()];
        if (box.top < frame.top + 30) place.scrollTop -= frame.top + 30 - box.top;
        else if (box.bottom > frame.bottom) place.scrollTop += box.bottom - frame.bottom;
      }
    },
  };
}

/** A column of 90% intervals: sorted by their width, in a CSV file two columns. */
function intervalColumn(key, of, limits) {
  return {
    key, label: "90% interval", hint: `90% interval of ${of}; sorted by width`, heads: [`${of}, 5%`, `${of}, 95%`],
    csv: limits, show: (row) => interval(...limits(row)),
    value: (row) => (limits(row).every(known) ? limits(row)[1] - limits(row)[0] : null),
  };
}

function buildZoneTable(choose) {
  const largest = () => Math.max(...zones.lost_mean.map((v, i) => (inArea(i) && v) || 0), 1e-9);
  let most = largest();
  const plainColumn = (key, label, show, hint) => ({
    key, label, hint, value: (i) => zones[key][i], show: (i) => show(zones[key][i]),
  });
  const columns = [
    { key: "name", label: "Zone", text: true, value: (i) => zones.name[i], show: (i) => zones.name[i] },
    { ...plainColumn("lost_mean", "Lost trips", number, "Riders who found nothing and were served nowhere"), bar: (i) => Math.min((zones.lost_mean[i] || 0) / most, 1),
      show: (i) => (failed(i) ? "failed" : number(zones.lost_mean[i])) },
    intervalColumn("interval", "lost trips", (i) => [zones.lost_q05[i], zones.lost_q95[i]]),
    plainColumn("lost_share", "Share lost", percent, "Share of demand that was lost"),
    plainColumn("stockout_share", "Time empty", percent, "Share of the open time out of stock"),
    plainColumn("observed", "Observed trips", number, "Trips that were recorded"),
    plainColumn("demand_mean", "Demand", number, "Riders who came to the zone first, served or not: observed plus lost, plus those who walked on, minus those who walked here"),
  ];
  if (zones.true_demand) columns.push(plainColumn("true_demand", "True demand", number, "True demand of the simulated city"));
  const rows = zones.zone.map((_, i) => i);
  const made = sortableTable({
    place: byId("zone-table"), caption: "Zones with observed, lost and demanded trips", columns, rows, choose,
    zoneOf: (i) => i, first: "lost_mean", none: "No zone has this name or id.",
  });
  const search = byId("search");
  const fold = (text) => text.toLowerCase();
  let shown = rows;
  const find = () => {
    const words = fold(search.value).split(/\s+/).filter(Boolean);
    shown = made.filter((i) => inArea(i) && words.every((w) => fold(zones.name[i]).includes(w) || fold(zones.zone[i]).includes(w)));
    byId("found").textContent = words.length ? `${shown.length} of ${rows.filter(inArea).length}` : "";
  };
  search.addEventListener("input", find);
  search.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && shown.length) choose(shown[0]);
  });
  const rebuild = () => {
    most = largest();
    made.rebuild();
    find();
  };
  return { ...made, rebuild };
}
