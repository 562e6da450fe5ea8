// The plan: which vehicles to move before the day begins, what that gains, and how sure it is.

const plan = data.plan;
const DEPOT = -1;
const planned = { asked: null, station: null, lines: [] }; // the station that was asked for, and what is drawn

const _placeName = (i) => (i === DEPOT ? "Depot" : zones.name[i]);
const _stationRow = (i) => plan.stations.number.indexOf(i);
const _signed = (value) => (value > 0 ? `+${value}` : value < 0 ? `−${-value}` : "0");

/** Whether a station, or one end of a move, is in the chosen area. */
const _inPlan = (i) => i !== DEPOT && inArea(i);
const _moveShown = (k) => chosen.area === null || _inPlan(plan.moves.source[k]) || _inPlan(plan.moves.target[k]);

/** Sums of the stations of the chosen area; undefined if none of them is planned. */
const _planSums = () => plan.areas.find(({ area }) => area === chosen.area);

function buildPlan() {
  if (plan.missing) {
    byId("plan-title").textContent = "Plan";
    byId("plan-lead").textContent = `There is no plan. ${plan.missing}`;
    for (const id of ["plan-body", "plan-more", "plan-limits", "plan-copy"]) byId(id).hidden = true;
    return;
  }
  byId("plan-title").textContent = `Plan for ${plan.words}`;
  if (plan.holiday) {
    byId("plan-day").textContent = plan.holiday.sentence;
    byId("plan-day").classList.toggle("care", !plan.holiday.included);
    byId("plan-day").hidden = false;
  }
  _movesTable();
  byId("plan-choice").addEventListener("change", () => _showStation(Number(byId("plan-choice").value)));
  _planLimits();
  byId("plan-copy").addEventListener("click", _copyMoves);
}

function _planLead(own) {
  const { now, planned: after, gain } = own.totals;
  const strong = (text, name) => element("strong", { class: name }, text);
  const range = (row) => `90%: ${interval(Math.round(row.q05), Math.round(row.q95))}`;
  const basis = plan.forecast ? "Demand is the run's forecast." : `Demand is that of the last ${counted(plan.similar, "such day")}, with the shocks of the last four weeks.`;
  const where = chosen.area === null ? "" : ` in ${chosen.area}`;
  const lead = byId("plan-lead");
  lead.replaceChildren(`Left as they are, stations${where} would turn away `, strong(number(Math.round(now.mean))), ` ${Math.round(now.mean) === 1 ? "rider" : "riders"} (${range(now)}): ${number(Math.round(now.no_bike))} find no vehicle, ${number(Math.round(now.no_dock))} no dock. `);
  if (own.moved) lead.append("Moving ", strong(counted(own.moved, "vehicle")), `${where && ` from or to stations${where}, with the rest of the plan,`} leaves `, strong(number(Math.round(after.mean))), ` (${range(after)}) and gains `, strong(counted(Math.round(gain.mean), "rider"), "gain"), ` (${range(gain)}). `);
  else lead.append(`No move${where} gains enough to be worth a van. `);
  lead.append(`Levels ${plan.levels}: ${counted(own.fleet, "vehicle")}${where}. ${basis}`);
  if (chosen.days !== null || chosen.part !== null) lead.append(" The plan is for the whole day, whatever days and hours are chosen above.");
}

function _movesTable() {
  const moves = plan.moves;
  if (!moves.source.length) {
    byId("plan-moves").append(element("p", { class: "message" }, "No vehicle needs to be moved."));
    return;
  }
  const most = Math.max(...moves.gain_mean);
  planned.table = sortableTable({
    place: byId("plan-moves"),
    caption: "Vehicles to move: from, to, how many, riders gained, interval, how sure",
    rows: moves.source.map((_, k) => k),
    choose: (k) => _showStation(moves.target[k] === DEPOT ? moves.source[k] : moves.target[k], k),
    zoneOf: (k) => k,
    first: "gain",
    none: "No vehicle needs to be moved.",
    columns: [
      { key: "from", label: "From", text: true, value: (k) => _placeName(moves.source[k]), show: (k) => _placeName(moves.source[k]) },
      { key: "to", label: "To", text: true, value: (k) => _placeName(moves.target[k]), show: (k) => element("bdi", { class: "short", title: _placeName(moves.target[k]) }, _placeName(moves.target[k])) },
      { key: "bikes", label: "Vehicles", hint: "Vehicles to move", value: (k) => moves.bikes[k], show: (k) => number(moves.bikes[k]) },
      { key: "gain", label: "Riders gained", hint: "Riders who are no longer turned away", value: (k) => moves.gain_mean[k], show: (k) => number(moves.gain_mean[k]), bar: (k) => moves.gain_mean[k] / most },
      intervalColumn("interval", "riders gained", (k) => [moves.gain_q05[k], moves.gain_q95[k]]),
      { key: "each", label: "Riders per vehicle", hint: "Riders gained per vehicle", value: (k) => moves.gain_per_bike[k], show: (k) => number(moves.gain_per_bike[k]) },
      { key: "sure", label: "Sure to gain", hint: "Share of such days on which the move gains riders", value: (k) => moves.sure[k], show: (k) => percent(moves.sure[k]) },
    ],
  });
}

/** Put the moves on the clipboard as lines for a driver. */
function _copyMoves() {
  const moves = plan.moves;
  const lines = moves.source.map((from, k) => `${moves.bikes[k]}\t${_placeName(from)}\t${_placeName(moves.target[k])}`).filter((_, k) => _moveShown(k));
  const text = ["vehicles\tfrom\tto", ...lines].join("\n");
  const done = () => {
    byId("plan-copy").textContent = "Copied";
    setTimeout(() => (byId("plan-copy").textContent = "Copy moves"), 1500);
  };
  if (navigator.clipboard) navigator.clipboard.writeText(text).then(done, () => _copyBySelection(text, done));
  else _copyBySelection(text, done);
}

function _copyBySelection(text, done) {
  const area = element("textarea", { class: "unseen" });
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
  done();
}

function _planChoice() {
  const order = plan.stations.number.filter(_inPlan).sort((a, b) => zones.name[a].localeCompare(zones.name[b], undefined, { numeric: true }));
  byId("plan-choice").replaceChildren(...order.map((i) => element("option", { value: i }, zones.name[i])));
  const first = plan.moves.target.find((i, k) => _moveShown(k) && _inPlan(i));
  planned.station = order.includes(planned.asked) ? planned.asked : (first ?? plan.stations.number.find(_inPlan));
}

async function _showStation(i, move) {
  planned.asked = planned.station = i;
  const moves = plan.moves;
  const marked = move ?? moves.source.findIndex((_, k) => moves.source[k] === i || moves.target[k] === i);
  if (planned.table) planned.table.mark(marked);
  await _drawCurve();
  _markPlan();
  document.body.dataset.planned = i;
}

async function drawPlan() {
  if (plan.missing) return;
  const own = _planSums();
  for (const id of ["plan-body", "plan-more"]) byId(id).hidden = !own;
  byId("plan-copy").hidden = !own || !plan.moves.source.some((_, k) => _moveShown(k));
  if (!own) {
    byId("plan-lead").textContent = `No station in ${chosen.area} is planned.`;
    return;
  }
  _planLead(own);
  if (planned.table) planned.table.filter(_moveShown);
  _planChoice();
  _planMore(own);
  _fleetNote(own);
  _drawPlanMap();
  await Promise.all([_drawCurve(), _drawFleet(own)]);
  _markPlan();
}

// ---- the map: ▲ bring, ▼ take; lines lead from where to where

function _drawPlanMap() {
  const place = byId("plan-map");
  if (!data.map) {
    place.replaceChildren(element("p", { class: "message" }, "There is no map because no zone has a position."));
    return;
  }
  const width = Math.max(place.clientWidth, 200);
  const height = Math.max(place.clientHeight, 200);
  const extent = _extent();
  const [pad, foot] = [24, 26];
  const scale = Math.min((width - 2 * pad) / (extent.east - extent.west), (height - 2 * pad - foot) / (extent.north - extent.south));
  const left = (width - scale * (extent.east - extent.west)) / 2;
  const top = (height - foot - scale * (extent.north - extent.south)) / 2;
  const at = (i) => [left + scale * (data.map.x[i] - extent.west), top + scale * (extent.north - data.map.y[i])];
  const svg = drawn("svg", { viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Map of the moves; arrow keys move between stations, Enter selects one" });
  planned.lines = _drawLines(svg, at);
  planned.marks = _drawStations(svg, at);
  const key = element("div", { class: "legend" }, _keySymbol(1), "bring", _keySymbol(-1), "take", _keySymbol(0), "leave", element("span", { class: "muted" }, "size: vehicles"));
  place.replaceChildren(svg, key);
}

function _shape(change, size) {
  if (!change) return `M${-size} 0a${size} ${size} 0 1 0 ${2 * size} 0a${size} ${size} 0 1 0 ${-2 * size} 0Z`;
  const up = change > 0 ? -1 : 1;
  return `M0 ${up * size * 1.15}L${size} ${-up * size * 0.75}H${-size}Z`;
}

function _keySymbol(change) {
  const svg = drawn("svg", { viewBox: "-7 -7 14 14", class: "symbol", "aria-hidden": "true" });
  const path = drawn("path", { d: _shape(change, change ? 5.5 : 3.5), class: `planned ${change > 0 ? "bring" : change < 0 ? "take" : ""}` });
  svg.append(path);
  return svg;
}

function _drawLines(svg, at) {
  const moves = plan.moves;
  const most = Math.max(...moves.bikes, 1);
  const group = drawn("g", { class: "plan-lines", "aria-hidden": "true" });
  svg.append(group);
  return moves.source.map((from, k) => {
    const to = moves.target[k];
    if (!_moveShown(k) || [from, to].some((i) => i === DEPOT || data.map.x[i] === null)) return null;
    const [[x0, y0], [x1, y1]] = [at(from), at(to)];
    const bend = 0.12;
    const [cx, cy] = [(x0 + x1) / 2 - bend * (y1 - y0), (y0 + y1) / 2 + bend * (x1 - x0)];
    const line = drawn("path", { d: `M${x0.toFixed(1)} ${y0.toFixed(1)}Q${cx.toFixed(1)} ${cy.toFixed(1)} ${x1.toFixed(1)} ${y1.toFixed(1)}`, "stroke-width": (1 + 3.5 * Math.sqrt(moves.bikes[k] / most)).toFixed(1) });
    group.append(line);
    return line;
  });
}

function _drawStations(svg, at) {
  const stations = plan.stations;
  const most = Math.max(...stations.change.map(Math.abs), 1);
  const ends = new Set(plan.moves.source.flatMap((from, k) => (_moveShown(k) ? [from, plan.moves.target[k]] : [])));
  const order = stations.number.map((_, r) => r).filter((r) => data.map.x[stations.number[r]] !== null && (_inPlan(stations.number[r]) || ends.has(stations.number[r])));
  order.sort((a, b) => Math.abs(stations.change[b]) - Math.abs(stations.change[a]));
  const crowded = Math.min(1, Math.sqrt(60 / order.length) + 0.25);
  const sizeOf = (change) => (change ? 5 + 9 * Math.sqrt(Math.abs(change) / most) : 3.5) * crowded;
  const taken = order.map((r) => [...at(stations.number[r]), sizeOf(stations.change[r])]).map(([x, y, size]) => [x - size, y - size, x + size, y + size]);
  const marks = order.map((r) => {
    const [i, change] = [stations.number[r], stations.change[r]];
    const size = sizeOf(change);
    const [x, y] = at(i);
    const mark = drawn("g", { transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})`, role: "button", tabindex: -1, "aria-label": _planSpoken(r), "data-zone": i });
    mark.classList.add("planned-mark");
    mark.append(drawn("path", { d: _shape(change, size), class: `planned ${change > 0 ? "bring" : change < 0 ? "take" : ""}` }));
    const place = change && _roomFor(taken, x, y, size, _signed(change));
    if (place) {
      const text = drawn("text", place);
      text.textContent = _signed(change);
      mark.append(text);
    }
    mark.addEventListener("click", () => _showStation(i));
    mark.addEventListener("pointermove", (event) => showTip(_planTip(r), event.clientX, event.clientY));
    mark.addEventListener("pointerleave", hideTip);
    mark.addEventListener("focus", () => {
      const box = mark.getBoundingClientRect();
      if (mark.matches(":focus-visible")) showTip(_planTip(r), box.right, box.top);
    });
    mark.addEventListener("blur", hideTip);
    svg.append(mark);
    return { i, mark, x, y };
  });
  for (const { i, mark } of marks) {
    mark.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") _showStation(i);
      else if (event.key.startsWith("Arrow")) stepBetween(marks, i, event.key);
      else return;
      event.preventDefault();
    });
  }
  if (marks.length) marks[0].mark.setAttribute("tabindex", 0);
  return marks;
}

/** A place for a number, right or left of its mark or above it, that meets no other mark or number; null if none. */
function _roomFor(taken, x, y, size, text) {
  const width = 7 * text.length;
  const places = [[size + 2, 4, "start", 0], [-size - 2, 4, "end", width], [0, -size - 3, "middle", width / 2]];
  for (const [dx, dy, anchor, before] of places) {
    const left = x + dx - before;
    const box = [left, y + dy - 10, left + width, y + dy + 1];
    if (taken.some((other) => box[0] < other[2] && box[2] > other[0] && box[1] < other[3] && box[3] > other[1])) continue;
    taken.push(box);
    return { x: dx, y: dy, "text-anchor": anchor };
  }
  return null;
}

function _planSpoken(r) {
  const stations = plan.stations;
  const change = stations.change[r];
  const doing = change > 0 ? `bring ${change}` : change < 0 ? `take ${-change}` : "leave as it is";
  return `${zones.name[stations.number[r]]}: ${doing}; now ${stations.level_now[r]} of ${stations.docks[r]}`;
}

function _planTip(r) {
  const s = plan.stations;
  const list = element("dl");
  const rows = [
    ["Now", `${s.level_now[r]} of ${s.docks[r]} docks`],
    ["Plan", `${s.planned[r]} (${_signed(s.change[r])})`],
    ["Target", `${s.target[r]} (${s.target_low[r]} – ${s.target_high[r]})`],
    ["Turned away now", number(s.lost_now_mean[r])],
    ["Turned away after", number(s.lost_planned_mean[r])],
  ];
  for (const [name, value] of rows) list.append(element("dt", {}, name), element("dd", {}, value));
  return [element("strong", {}, zones.name[s.number[r]]), list];
}

function _markPlan() {
  const i = planned.station;
  byId("plan-choice").value = i;
  for (const { i: other, mark } of planned.marks || []) {
    mark.classList.toggle("chosen", other === i);
    mark.setAttribute("aria-pressed", other === i);
    mark.setAttribute("tabindex", other === i ? 0 : -1);
  }
  planned.lines.forEach((line, k) => line && line.classList.toggle("chosen", plan.moves.source[k] === i || plan.moves.target[k] === i));
}

// ---- the curve of a station, and of the fleet

async function _drawCurve() {
  const i = planned.station;
  const r = _stationRow(i);
  const [curve, s] = [plan.curves[i], plan.stations];
  const both = curve.no_bike.map((v, k) => v + curve.no_dock[k]);
  byId("plan-station-title").replaceChildren(element("bdi", {}, zones.name[i]));
  const parts = [
    `now ${s.level_now[r]} of ${s.docks[r]}`, `plan ${s.planned[r]} (${_signed(s.change[r])})`, `target ${s.target[r]}, good from ${s.target_low[r]} to ${s.target_high[r]}`,
    `gains ${counted(s.gain_mean[r], "rider")} here (${interval(s.gain_q05[r], s.gain_q95[r])})`,
  ];
  if (s.broken[r]) parts.push(`${s.broken[r]} broken`);
  byId("plan-station-note").textContent = parts.join(" · ");
  const x = both.map((_, k) => k);
  const ink = colour("ink");
  const layout = {
    ...baseLayout(),
    showlegend: false,
    margin: { l: 42, r: 8, t: 22, b: 34 },
    xaxis: { ...axis(), title: axisTitle("vehicles at the start"), range: [-0.4, both.length - 0.6], fixedrange: true, zeroline: false },
    yaxis: { ...axis(), title: axisTitle("riders turned away"), rangemode: "tozero", fixedrange: true },
    shapes: [
      { type: "rect", x0: s.target_low[r] - 0.4, x1: s.target_high[r] + 0.4, yref: "paper", y0: 0, y1: 1, fillcolor: withAlpha(colour("good"), 0.14), line: { width: 0 }, layer: "below" },
      { type: "line", x0: s.level_now[r], x1: s.level_now[r], yref: "paper", y0: 0, y1: 1, line: { color: ink, width: 1.5, dash: "dot" } },
      { type: "line", x0: s.planned[r], x1: s.planned[r], yref: "paper", y0: 0, y1: 1, line: { color: colour("good"), width: 2 } },
    ],
    annotations: [
      { x: s.level_now[r], yref: "paper", y: 1, yanchor: "bottom", xanchor: s.level_now[r] <= s.planned[r] ? "right" : "left", text: "now", showarrow: false, font: { size: 11, color: ink } },
      { x: s.planned[r], yref: "paper", y: 1, yanchor: "bottom", xanchor: s.level_now[r] <= s.planned[r] && s.planned[r] < 0.9 * x.length ? "left" : "right", text: "plan", showarrow: false, font: { size: 11, color: colour("good") } },
    ],
  };
  const hover = "<extra></extra>";
  const traces = [
    { x: [...x, ...[...x].reverse()], y: [...curve.high, ...[...curve.low].reverse()], fill: "toself", fillcolor: withAlpha(colour("demand"), 0.16), line: { width: 0 }, mode: "lines", hoverinfo: "skip" },
    { x, y: curve.no_dock, mode: "lines", line: { color: colour("muted"), width: 1.3, dash: "dash" }, hovertemplate: `%{x} vehicles: %{y:.3~g} find no dock${hover}` },
    { x, y: curve.no_bike, mode: "lines", line: { color: colour("lost"), width: 1.3, dash: "dot" }, hovertemplate: `%{x} vehicles: %{y:.3~g} find no vehicle${hover}` },
    { x, y: both, mode: "lines+markers", marker: { size: 4 }, line: { color: colour("demand"), width: 2.2 }, hovertemplate: `%{x} vehicles: %{y:.3~g} riders turned away${hover}` },
  ];
  _curveKeys();
  await Plotly.react(byId("plan-curve"), traces, layout, { responsive: true, displayModeBar: false });
}

function _curveKeys() {
  const line = (name, dash) => drawn("path", { d: "M0 6H18", stroke: colour(name), "stroke-width": 2, "stroke-dasharray": dash });
  const band = (name, alpha) => drawn("rect", { width: 18, height: 12, fill: withAlpha(colour(name), alpha) });
  const keys = [["turned away", line("demand", "none")], ["90%", band("demand", 0.2)], ["no vehicle", line("lost", "2 2")], ["no dock", line("muted", "5 3")], ["good levels", band("good", 0.2)]];
  byId("plan-keys").replaceChildren(
    ...keys.map(([text, sign]) => {
      const svg = drawn("svg", { viewBox: "0 0 18 12", "aria-hidden": "true" });
      svg.append(sign);
      return element("li", {}, svg, text);
    })
  );
}

async function _drawFleet(own) {
  const f = own.fleets;
  const layout = {
    ...baseLayout(),
    showlegend: false,
    margin: { l: 42, r: 8, t: 22, b: 34 },
    xaxis: { ...axis(), title: axisTitle(`vehicles in ${chosen.area === null ? "the city" : plain(chosen.area, 30)}, placed best`), fixedrange: true, zeroline: false },
    yaxis: { ...axis(), title: axisTitle("riders turned away"), rangemode: "tozero", fixedrange: true },
    shapes: [{ type: "line", x0: own.fleet, x1: own.fleet, yref: "paper", y0: 0, y1: 1, line: { color: colour("ink"), width: 1.5, dash: "dot" } }],
    annotations: [{ x: own.fleet, yref: "paper", y: 1, yanchor: "bottom", text: `now ${own.fleet}`, showarrow: false, font: { size: 11, color: colour("ink") } }],
  };
  const band = { x: [...f.bikes, ...[...f.bikes].reverse()], y: [...f.lost_q95, ...[...f.lost_q05].reverse()], fill: "toself", fillcolor: withAlpha(colour("demand"), 0.16), line: { width: 0 }, mode: "lines", hoverinfo: "skip" };
  const line = { x: f.bikes, y: f.lost_mean, mode: "lines+markers", marker: { size: 4 }, line: { color: colour("demand"), width: 2.2 }, hovertemplate: "%{x} vehicles: %{y:.3~g} riders turned away<extra></extra>" };
  await Plotly.react(byId("plan-fleet"), [band, line], layout, { responsive: true, displayModeBar: false });
}

// ---- next vehicles, next docks, limits

function _planMore(own) {
  const lines = (title, note, table, word, sign) => {
    const list = element("ul");
    table.number.forEach((i, k) => {
      const amount = table[word][k];
      list.append(element("li", {}, element("bdi", {}, zones.name[i]), ` ${sign ? _signed(amount) : `+${amount}`}`));
    });
    const none = element("p", { class: "note" }, "None would gain riders.");
    return element("section", {}, element("h3", {}, title), element("p", { class: "note" }, note), table.number.length ? list : none);
  };
  const total = (table) => counted(table.gain.reduce((a, b) => a + b, 0), "rider");
  byId("plan-more").replaceChildren(
    lines("Where the next ten vehicles gain most", `${total(own.next_bikes)} more on such a day`, own.next_bikes, "bikes"),
    lines("Where the next ten docks gain most", `${total(own.next_docks)} more on such a day`, own.next_docks, "docks")
  );
  if (own.docks_to_move) {
    const gain = own.docks_to_move.gain[0] || 0;
    byId("plan-more").append(lines("Larger and smaller stations", `Ten docks moved, vehicles placed best: ${counted(gain, "rider")} more`, own.docks_to_move, "docks", true));
  }
}

function _fleetNote(own) {
  const best = own.fleets.lost_mean.indexOf(Math.min(...own.fleets.lost_mean));
  const here = own.fleets.bikes.indexOf(own.fleet);
  byId("plan-fleet-note").textContent = `Counted station by station, ${number(own.fleets.bikes[best])} would turn away fewest: ${number(own.fleets.lost_mean[best])}, against ${number(own.fleets.lost_mean[here])} with today's ${own.fleet}.`;
}

function _planLimits() {
  const notes = [...plan.limits];
  if (plan.left_out) notes.push(`${counted(plan.left_out, "zone")} not planned: ${plan.why_left_out.join("; ")}.`);
  byId("plan-limits").querySelector("ul").append(...notes.map((text) => element("li", {}, text)));
}
