// The map: zones as circles or polygons, drawn to scale as SVG.

const METRICS = {
  lost_mean: { label: "Lost trips", show: number },
  lost_share: { label: "Share lost", show: percent },
  stockout_share: { label: "Out of stock", show: percent },
};
const LARGEST = 17; // radius of the zone that lost most, where there is room
const map = { metric: "lost_mean", marks: [], zoom: 1, x: 0, y: 0, largest: LARGEST };

function buildMap(choose) {
  map.choose = choose;
  const switcher = byId("metric");
  for (const [name, metric] of Object.entries(METRICS)) {
    const input = element("input", { type: "radio", name: "metric", value: name, id: `metric-${name}` });
    input.checked = name === map.metric;
    input.addEventListener("change", () => {
      map.metric = name;
      paintMap();
    });
    switcher.append(input, element("label", { for: `metric-${name}` }, metric.label));
  }
  if (!data.map) {
    switcher.hidden = true;
    byId("map").append(
      element("p", { class: "message" }, "There is no map because no zone has a position. Give `unmet panel` a table of stations with lat and lon.")
    );
    return;
  }
  map.svg = drawn("svg", { role: "group", "aria-label": "Map of zones; arrow keys move between zones, Enter selects one" });
  const buttons = element("div", { class: "zoom" });
  for (const [sign, name, factor] of [["+", "Zoom in", 1.6], ["−", "Zoom out", 1 / 1.6], ["⟲", "Show all", 0]]) {
    const button = element("button", { type: "button", "aria-label": name, title: name }, sign);
    button.addEventListener("click", () => zoomMap(factor));
    buttons.append(button);
  }
  byId("map").append(map.svg, element("div", { class: "legend", id: "legend" }), buttons);
  _dragging();
  drawMap();
}

function zoomMap(factor, px = map.width / 2, py = map.height / 2) {
  const zoom = factor ? Math.min(Math.max(map.zoom * factor, 1), 40) : 1;
  map.x = zoom === 1 ? 0 : px - ((px - map.x) * zoom) / map.zoom;
  map.y = zoom === 1 ? 0 : py - ((py - map.y) * zoom) / map.zoom;
  map.zoom = zoom;
  _place();
}

function _dragging() {
  let from = null;
  let moved = 0;
  map.svg.addEventListener("pointerdown", (event) => {
    moved = 0;
    if (map.zoom > 1) from = { x: event.clientX - map.x, y: event.clientY - map.y };
  });
  // The end of a drag is not a choice.
  map.svg.addEventListener("click", (event) => moved > 4 && event.stopPropagation(), true);
  window.addEventListener("pointermove", (event) => {
    if (!from) return;
    moved += Math.abs(event.movementX) + Math.abs(event.movementY);
    map.x = event.clientX - from.x;
    map.y = event.clientY - from.y;
    _place();
  });
  window.addEventListener("pointerup", () => (from = null));
  window.addEventListener("pointercancel", () => (from = null));
  map.svg.addEventListener(
    "wheel",
    (event) => {
      if (!event.ctrlKey && !event.metaKey) return; // the wheel alone scrolls the page
      event.preventDefault();
      const box = map.svg.getBoundingClientRect();
      zoomMap(Math.exp(-event.deltaY / 300), event.clientX - box.left, event.clientY - box.top);
    },
    { passive: false }
  );
}

function _extent() {
  const points = [];
  (data.map.shapes || []).forEach((rings) => rings && rings.forEach((ring) => points.push(...ring)));
  data.map.x.forEach((x, i) => x !== null && points.push([x, data.map.y[i]]));
  let [west, east, south, north] = [Infinity, -Infinity, Infinity, -Infinity];
  for (const [x, y] of points) {
    west = Math.min(west, x);
    east = Math.max(east, x);
    south = Math.min(south, y);
    north = Math.max(north, y);
  }
  const least = 0.2; // km: a single station is not a map of a point
  const room = (low, high) => Math.max(0, least - (high - low)) / 2;
  const [rx, ry] = [room(west, east), room(south, north)];
  return { west: west - rx, east: east + rx, south: south - ry, north: north + ry };
}

function drawMap() {
  if (!map.svg) return;
  const box = byId("map").getBoundingClientRect();
  map.width = Math.max(box.width, 200);
  map.height = Math.max(box.height, 200);
  map.svg.setAttribute("viewBox", `0 0 ${map.width} ${map.height}`);
  const extent = _extent();
  const pad = LARGEST + 8;
  const foot = zones.status.some((s) => s !== "ok") ? 44 : 34; // the legend's
  const scale = Math.min(
    (map.width - 2 * pad) / (extent.east - extent.west),
    (map.height - 2 * pad - foot) / (extent.north - extent.south)
  );
  map.scale = scale;
  // Where zones are many their circles are smaller, so that each can be seen.
  const area = scale ** 2 * (extent.east - extent.west) * (extent.north - extent.south);
  map.largest = Math.min(Math.max(0.9 * Math.sqrt(area / zones.zone.length), 7), LARGEST);
  const left = (map.width - scale * (extent.east - extent.west)) / 2;
  const top = (map.height - foot - scale * (extent.north - extent.south)) / 2;
  map.at = (x, y) => [left + scale * (x - extent.west), top + scale * (extent.north - y)];
  _drawMarks();
  _place();
  paintMap();
}

function _drawMarks() {
  map.svg.replaceChildren();
  map.grid = drawn("g", { class: "grid" });
  map.group = drawn("g");
  map.labels = drawn("g", { class: "labels", "aria-hidden": "true" });
  const north = drawn("text", { class: "north", x: 12, y: 20 });
  north.textContent = "N ↑";
  map.svg.append(map.grid, map.group, map.labels, north);
  map.group.append(_base());
  const most = Math.max(...zones.lost_mean.map((v, i) => (inArea(i) && v) || 0), 0);
  const smallest = map.largest / 4.5;
  const radius = (i) => smallest + (map.largest - smallest) * Math.sqrt(most > 0 ? (zones.lost_mean[i] || 0) / most : 0);
  map.marks = [];
  const order = zones.zone.map((_, i) => i).filter((i) => data.map.x[i] !== null && inArea(i));
  order.sort((a, b) => radius(b) - radius(a)); // small ones on top
  for (const i of order) {
    const rings = data.map.shapes && data.map.shapes[i];
    const [x, y] = map.at(data.map.x[i], data.map.y[i]);
    const line = (ring) => `M${ring.map((p) => map.at(...p).map((v) => v.toFixed(2)).join(" ")).join("L")}Z`;
    const mark = rings
      ? drawn("path", { d: rings.map(line).join(""), "fill-rule": "evenodd" })
      : drawn("circle", { cx: x.toFixed(2), cy: y.toFixed(2) });
    mark.classList.add("mark");
    mark.classList.toggle("failed", failed(i));
    mark.dataset.zone = i;
    for (const [name, value] of Object.entries({ role: "button", tabindex: -1, "aria-label": _spoken(i) })) {
      mark.setAttribute(name, value);
    }
    _listen(mark, i);
    map.group.append(mark);
    map.marks.push({ i, mark, x, y, radius: rings ? 0 : radius(i) });
  }
  if (map.marks.length) map.marks[0].mark.setAttribute("tabindex", 0);
}

/** Water and streets, if the report was given any; else the density of stations, as overlapping discs. */
function _base() {
  const base = drawn("g", { class: "base", "aria-hidden": "true" });
  const path = (line) => `M${line.map((p) => map.at(...p).map((v) => v.toFixed(1)).join(" ")).join("L")}`;
  const { lines = [], areas = [] } = data.map.base || {};
  if (areas.length) base.append(drawn("path", { class: "filled", "fill-rule": "evenodd", d: areas.map((ring) => `${path(ring)}Z`).join("") }));
  if (lines.length) base.append(drawn("path", { d: lines.map(path).join("") }));
  if (areas.length || lines.length || data.map.shapes) return base;
  base.setAttribute("fill-opacity", Math.min(0.03, 6 / data.map.x.length)); // many discs lie on each other
  data.map.x.forEach((x, i) => {
    if (x === null) return;
    const [cx, cy] = map.at(x, data.map.y[i]).map((v) => v.toFixed(1));
    base.append(drawn("circle", { cx, cy, r: (1.8 * map.largest).toFixed(1) }));
  });
  return base;
}

const MOST_LABELS = 8;

/** Names of the zones that lost most, where there is room; the first is always named, over other marks if need be. */
function _drawLabels() {
  map.labels.replaceChildren();
  const marks = map.marks.length > 60 ? [] : map.marks.map((m) => _boxOf(m, 0));
  const taken = [[0, map.height - 34, map.width, map.height], [map.width - 44, 0, map.width, 116]]; // legend and buttons
  const some = map.marks.filter((m) => zones.lost_mean[m.i] > 0 || map.marks.length <= MOST_LABELS).slice(0, 3 * MOST_LABELS);
  const names = shortNames(some.map((mark) => zones.name[mark.i]), 24);
  for (const [k, mark] of some.entries()) {
    if (map.labels.childElementCount >= MOST_LABELS) return;
    const name = names[k];
    const own = map.marks.indexOf(mark);
    const places = _placesOf(mark, 6.2 * Array.from(name).length).filter(({ box }) => box[0] >= 2 && box[2] <= map.width - 2 && box[1] >= 2 && !taken.some((other) => _meet(box, other)));
    const free = places.find(({ box }) => !marks.some((other, k) => k !== own && _meet(box, other)));
    const place = free || (map.labels.childElementCount ? null : places[0]);
    if (!place) continue;
    const text = drawn("text", { x: place.x.toFixed(1), y: (place.y + 4).toFixed(1), "text-anchor": place.anchor });
    text.textContent = name;
    map.labels.append(text);
    taken.push(place.box);
  }
}

const _meet = (a, b) => a[0] < b[2] && a[2] > b[0] && a[1] < b[3] && a[3] > b[1];

/** Right of a mark, left of it, below and above: where its name may stand, and the box that it takes there. */
function _placesOf(mark, width) {
  const [left, top, right, bottom] = _boxOf(mark, 1);
  const [cx, cy] = [(left + right) / 2, (top + bottom) / 2];
  const places = [[right + 3, cy, "start", 0], [left - 3, cy, "end", width], [cx, bottom + 9, "middle", width / 2], [cx, top - 9, "middle", width / 2]];
  return places.map(([x, y, anchor, before]) => ({ x, y, anchor, box: [x - before, y - 7, x - before + width, y + 7] }));
}

/** A mark on the screen, as left, top, right, bottom. */
function _boxOf({ x, y, radius }, room) {
  const [cx, cy, r] = [map.x + x * map.zoom, map.y + y * map.zoom, (radius || 4) * Math.sqrt(map.zoom) + room];
  return [cx - r, cy - r, cx + r, cy + r];
}

function _spoken(i) {
  if (failed(i)) return `${zones.name[i]}: could not be estimated`;
  return `${zones.name[i]}: ${number(zones.lost_mean[i])} trips lost, ${percent(zones.lost_share[i])} of demand`;
}

function _listen(mark, i) {
  mark.addEventListener("click", () => map.choose(i));
  mark.addEventListener("pointermove", (event) => showTip(_tipOf(i), event.clientX, event.clientY));
  mark.addEventListener("pointerleave", hideTip);
  mark.addEventListener("focus", () => {
    const box = mark.getBoundingClientRect();
    if (mark.matches(":focus-visible")) showTip(_tipOf(i), box.right, box.top);
  });
  mark.addEventListener("blur", hideTip);
  mark.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === " ") map.choose(i);
    else if (event.key.startsWith("Arrow")) stepBetween(map.marks, i, event.key);
    else return;
    event.preventDefault();
  });
}

/** Go to the nearest zone in the direction of an arrow key. */
function stepBetween(marks, i, key) {
  const [dx, dy] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[key];
  const here = marks.find((m) => m.i === i);
  let best = null;
  for (const other of marks) {
    const along = (other.x - here.x) * dx + (other.y - here.y) * dy;
    const across = Math.abs((other.x - here.x) * dy) + Math.abs((other.y - here.y) * dx);
    if (along <= 0.5) continue;
    const cost = along + 2 * across;
    if (!best || cost < best.cost) best = { cost, other };
  }
  if (!best) return;
  here.mark.setAttribute("tabindex", -1);
  best.other.mark.setAttribute("tabindex", 0);
  best.other.mark.focus();
}

function _tipOf(i) {
  const rows = failed(i)
    ? [["Observed", number(zones.observed[i])], ["Could not be estimated", ""]]
    : [
        ["Lost", `${number(zones.lost_mean[i])} (${interval(zones.lost_q05[i], zones.lost_q95[i])})`],
        ["Share of demand", percent(zones.lost_share[i])],
        ["Out of stock", percent(zones.stockout_share[i])],
        ["Observed", number(zones.observed[i])],
        ["Demand", number(zones.demand_mean[i])],
      ];
  const list = element("dl");
  for (const [name, value] of rows) list.append(element("dt", {}, name), element("dd", {}, value));
  return [element("strong", {}, zones.name[i]), list];
}

/** Put marks where zoom and pan have them; circles grow less than the map. */
function _place() {
  map.group.setAttribute("transform", `translate(${map.x} ${map.y}) scale(${map.zoom})`);
  map.svg.style.touchAction = map.zoom > 1 ? "none" : "pan-y";
  map.svg.style.cursor = map.zoom > 1 ? "grab" : "";
  for (const { mark, radius } of map.marks) {
    if (radius) mark.setAttribute("r", (radius / Math.sqrt(map.zoom)).toFixed(2));
  }
  _drawGrid();
  _drawLabels();
}

/** A faint grid and a bar that says how long its squares are. */
function _drawGrid() {
  const scale = map.scale * map.zoom;
  const wanted = 60 / scale;
  const power = 10 ** Math.floor(Math.log10(wanted));
  const step = [1, 2, 5, 10].map((k) => k * power).find((k) => k >= wanted);
  map.grid.replaceChildren();
  const pixels = step * scale;
  byId("legend").style.maxWidth = `${map.width - pixels - 44}px`; // what the bar leaves
  let path = "";
  for (let x = ((map.x % pixels) + pixels) % pixels; x < map.width; x += pixels) path += `M${x.toFixed(1)} 0V${map.height}`;
  for (let y = ((map.y % pixels) + pixels) % pixels; y < map.height; y += pixels) path += `M0 ${y.toFixed(1)}H${map.width}`;
  const right = map.width - 14;
  const bottom = map.height - 12;
  const text = drawn("text", { x: right - pixels / 2, y: bottom - 6, "text-anchor": "middle" });
  text.textContent = step >= 1 ? `${step} km` : `${Math.round(step * 1000)} m`;
  map.grid.append(
    drawn("path", { d: path }),
    drawn("path", { class: "ruler", d: `M${right - pixels} ${bottom - 4}v4H${right}v-4` }),
    text
  );
}

/** Colour the marks by the metric that was chosen. */
function paintMap() {
  if (!map.svg) return;
  const values = zones[map.metric];
  const sorted = values.filter((v, i) => known(v) && inArea(i)).sort((a, b) => a - b);
  // One zone far above all others must not leave the rest in one colour.
  const cap = sorted.length > 50 ? sorted[Math.floor(0.98 * (sorted.length - 1))] : sorted[sorted.length - 1];
  const top = cap > 0 ? cap : sorted[sorted.length - 1] || 0;
  const scale = scaleOf("lost");
  for (const { i, mark } of map.marks) {
    mark.style.fill = failed(i) || !known(values[i]) ? "none" : mixed(scale, top > 0 ? values[i] / top : 0);
  }
  const show = METRICS[map.metric].show;
  const most = sorted.length ? sorted[sorted.length - 1] : 0;
  const legend = byId("legend");
  legend.replaceChildren(
    element("span", {}, show(0)),
    element("i", { style: `background:linear-gradient(90deg,${scale.join(",")})` }),
    element("span", {}, `${most > top ? "≥ " : ""}${show(top)}`)
  );
  if (!data.map.shapes) legend.append(element("span", { class: "muted" }, "area: lost trips"));
  if (zones.status.some((s) => s !== "ok")) legend.append(element("span", { class: "muted" }, "dashed: not estimated"));
}

function markChosen(chosen) {
  for (const { i, mark } of map.marks) {
    const is = i === chosen;
    mark.classList.toggle("chosen", is);
    mark.setAttribute("aria-pressed", is);
    if (is) {
      map.group.append(mark); // its outline above its neighbours'
      map.marks.forEach((m) => m.mark.setAttribute("tabindex", m.i === i ? 0 : -1));
    }
  }
}

// ---- the box next to the pointer

function showTip(content, x, y) {
  const tip = byId("tip");
  tip.replaceChildren(...content);
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const left = x + 14 + box.width > innerWidth ? x - box.width - 14 : x + 14;
  tip.style.left = `${Math.max(left, 4)}px`;
  tip.style.top = `${Math.max(Math.min(y + 14, innerHeight - box.height - 4), 4)}px`;
}

function hideTip() {
  byId("tip").hidden = true;
}
