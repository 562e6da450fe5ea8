// The series of a zone: observed points, the rate with its band, stock-outs shaded; and its week as heat maps.

const MONDAY = Date.UTC(2024, 0, 1); // any
const MOST_DRAWN = 1600; // bins; a longer window is drawn by day
const shown = { zone: EVERY, from: 0, to: 0, byDay: false, left: 46 };
const _daily = () => data.bins.minutes >= 1440;
const touch = matchMedia("(pointer: coarse)").matches;
const CONFIG = {
  responsive: true,
  displaylogo: false,
  displayModeBar: touch ? false : "hover",
  modeBarButtons: [["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "toImage"]],
};

function _period() {
  const last = clock.days.length - 1;
  const step = _daily() ? data.bins.minutes * 60000 : DAY;
  return [clock.days[0], clock.days[last] + step];
}

/** Look at this stretch of time, kept within the period. */
function setWindow(from, to) {
  const [start, end] = _period();
  const least = 6 * data.bins.minutes * 60000;
  const length = Math.min(Math.max(to - from, least), end - start);
  const first = Math.min(Math.max(from, start), end - length);
  shown.from = first;
  shown.to = first + length;
}

/** The window was chosen by hand: draw it and keep it in the address. */
function _moved() {
  shown.moved = true;
  keepInAddress();
  return drawSeries();
}

/** A time of day within the chosen part, so that whole days are asked for by their kind alone. */
const _hourOfPart = () => (chosen.part === null ? 0 : data.story.parts[chosen.part][0] * 3600000);

function buildSeries() {
  const [start, end] = _period();
  const fineEnd = data.bins.future === null ? end : clock.bins[data.bins.future];
  const days = (end - start) / DAY;
  const choices = [["1 week", 7], ["4 weeks", 28], ["Whole period", Infinity]].filter(
    ([, length]) => length === Infinity || (length < days && !(_daily() && length < 28))
  );
  const step = (sign) => () => {
    const length = shown.to - shown.from;
    setWindow(shown.from + sign * length, shown.to + sign * length);
    _moved();
  };
  const place = byId("window");
  const add = (text, name, action) => {
    const button = element("button", { type: "button", "aria-label": name }, text);
    button.addEventListener("click", action);
    place.append(button);
  };
  add("◀", "Earlier", step(-1));
  for (const [text, length] of choices) {
    add(text, `Show ${text.toLowerCase()}`, () => {
      if (length === Infinity) setWindow(start, end);
      else {
        const middle = shown.to - shown.from < 0.98 * (end - start) ? (shown.from + shown.to) / 2 : fineEnd;
        setWindow(middle - (length * DAY) / 2, middle + (length * DAY) / 2);
      }
      _moved();
    });
  }
  add("▶", "Later", step(1));
  // The last week with records, and what is ahead of them.
  const usual = _daily() ? Math.max(days, 1) : 7;
  setWindow(Math.max(fineEnd - usual * DAY, start), end > fineEnd ? Math.min(end, fineEnd + 2 * DAY) : fineEnd);
}

/** First and last place of the times within a window, with a little beyond on both sides. */
function _slice(times, from, to) {
  const margin = (to - from) / 2;
  let first = 0;
  while (first < times.length && times[first] < from - margin) first++;
  let last = times.length;
  while (last > first && times[last - 1] > to + margin) last--;
  return [first, last];
}

function _binsCover(from, to) {
  const bins = (to - from) / (data.bins.minutes * 60000);
  return bins <= MOST_DRAWN && (data.bins.all || from >= clock.bins[0] - DAY / 2);
}

async function drawSeries() {
  const zone = shown.zone;
  const own = { ...(await drawnOf(zone)) };
  if (chosen.part !== null) own.days = await partDaysOf(zone, chosen.part);
  if (zone !== shown.zone) return; // another was chosen meanwhile
  shown.byDay = !_daily() && !_binsCover(shown.from, shown.to);
  const times = shown.byDay ? clock.days : clock.bins;
  const values = shown.byDay ? own.days : own.bins;
  const step = shown.byDay ? DAY : data.bins.minutes * 60000;
  const [first, last] = _slice(times, shown.from, shown.to);
  const at = Array.from(times.slice(first, last));
  const asked = at.map((t) => (shown.byDay || _daily() ? chosen.days === null || inChoice(t + _hourOfPart()) : inChoice(t)));
  const cut = (name) => Array.from(values[name].slice(first, last), (v, k) => (asked[k] ? v : NaN));
  const part = {
    at, step, sum: zone === EVERY && zones.zone.length > 1, middle: at.map((t) => t + step / 2),
    ...Object.fromEntries(["observed", "rate", "low", "high", "lost", "stockout", "off"].map((n) => [n, cut(n)])),
  };
  const unit = shown.byDay ? "day" : data.period.bin;
  byId("resolution").textContent = shown.byDay
    ? `by day; the band takes errors of a zone to last all day` + (data.bins.all ? "" : `; single ${data.period.bin}s from ${_date(clock.bins[0])}`)
    : "";
  _drawKeys(unit, part);
  await Plotly.react(byId("series"), _traces(part), _layout(part, unit), CONFIG);
  drawStrip(own);
}

const _date = (t) => new Date(t).toLocaleDateString("en-GB", { day: "numeric", month: "short", year: "numeric", timeZone: "UTC" });

function _traces(part) {
  const ink = colour("ink");
  const [demand, lost] = [colour("demand"), colour("lost")];
  const blank = (v) => (Number.isNaN(v) ? null : v);
  const narrow = part.middle.length > 500;
  const line = (y, more) => ({ x: part.middle, y: y.map(blank), type: "scatter", mode: "lines", hoverinfo: "skip", ...more });
  const hidden = part.lost.map((v, k) => (v > 0.005 ? part.observed[k] + v : NaN));
  const stems = { x: [], y: [] };
  hidden.forEach((top, k) => {
    if (Number.isNaN(top)) return;
    stems.x.push(part.middle[k], part.middle[k], null);
    stems.y.push(part.observed[k], top, null);
  });
  const points = (y, marker) => ({
    x: part.middle, y, type: "scatter", mode: "markers", marker, hoverinfo: "skip",
  });
  if (part.sum) return _sumTraces(part, line, points, blank, narrow);
  const missed = part.observed.map((v, k) => part.stockout[k] > 0);
  return [
    _shade(part, "off", "muted", 0.22),
    _shade(part, "stockout", "lost", 0.34),
    bandTrace(part.middle, part.low, part.high, withAlpha(demand, 0.2)),
    line(part.rate, { line: { color: demand, width: 2 } }),
    { ...stems, type: "scatter", mode: "lines", line: { color: lost, width: narrow ? 1 : 1.6 }, hoverinfo: "skip" },
    {
      x: part.middle, y: hidden.map(blank), type: "scatter", mode: "markers",
      marker: { color: lost, symbol: "line-ew", size: narrow ? 4 : 7, line: { color: lost, width: narrow ? 1 : 2 } },
      hoverinfo: "skip",
    },
    // Hollow for bins with a stock-out, so that they differ without colour, too.
    points(part.observed.map((v, k) => (missed[k] ? null : blank(v))), { size: narrow ? 3.5 : 5, color: ink }),
    points(part.observed.map((v, k) => (missed[k] ? blank(v) : null)), {
      size: narrow ? 3.5 : 5.5, color: colour("card"), line: { color: ink, width: 1.2 },
    }),
    _hoverTrace(part, blank),
  ];
}

/** One trace without marks answers for all of them: points of others may be far from where the pointer is. */
function _hoverTrace(part, blank) {
  return {
    x: part.middle, y: part.rate.map((r, k) => blank(Number.isNaN(r) ? part.observed[k] : r)), type: "scatter", mode: "markers",
    marker: { opacity: 0 }, customdata: part.at.map((_, k) => [_pointText(part, k)]), hovertemplate: "%{customdata[0]}<extra></extra>",
  };
}

/** A sum of zones: somewhere a zone is always empty, so stock-outs are a share, in a panel of their own. */
function _sumTraces(part, line, points, blank, narrow) {
  const [demand, lost] = [colour("demand"), colour("lost")];
  const wanted = part.observed.map((v, k) => v + (part.lost[k] || 0));
  return [
    bandTrace(part.middle, part.low, part.high, withAlpha(demand, 0.25)),
    line(part.rate, { line: { color: demand, width: 2 } }),
    line(wanted, { line: { color: lost, width: 1.2 } }),
    points(part.observed.map(blank), { size: narrow ? 3 : 4.5, color: colour("ink") }),
    { type: "bar", x: part.middle, y: part.stockout.map((v) => blank(100 * v)), width: part.step, yaxis: "y3", marker: { color: withAlpha(lost, 0.55), line: { width: 0 } }, hoverinfo: "skip" },
    _hoverTrace(part, blank),
  ];
}

function _pointText(part, k) {
  const lines = [`<b>${binText(part.at[k], part.step / 60000)}</b>`, `observed ${number(part.observed[k])}`];
  if (part.lost[k] > 0) lines.push(`lost ${number(part.lost[k])}`);
  if (!Number.isNaN(part.rate[k])) lines.push(`rate ${number(part.rate[k])}${Number.isNaN(part.low[k]) ? "" : ` (${interval(part.low[k], part.high[k])})`}`);
  if (part.stockout[k] > 0) lines.push(`out of stock ${percent(part.stockout[k])} of the ${part.sum ? "zones' time" : "time"}`);
  if (part.off[k] > 0) lines.push(`closed or unknown ${percent(part.off[k])}`);
  return lines.join("<br>");
}

/** What the signs in the series mean. */
function _drawKeys(unit, part) {
  const dot = (hollow) => drawn("circle", { cx: 9, cy: 6, r: 3, fill: hollow ? colour("card") : colour("ink"), stroke: colour("ink"), "stroke-width": 1.2 });
  const box = (fill) => drawn("rect", { x: 2, y: 0, width: 14, height: 12, rx: 2, fill });
  const [demand, lost, muted] = [colour("demand"), colour("lost"), colour("muted")];
  const path = (d, tone, width) => drawn("path", { d, stroke: tone, "stroke-width": width, fill: "none" });
  const band = part.low.some((v) => !Number.isNaN(v)) ? [[shown.byDay ? "band" : "90% band", box(withAlpha(demand, 0.22))]] : [];
  const keys = part.sum ? [
    ["observed", dot(false)],
    ["observed + lost", path("M0 6h18", lost, 1.6)],
    [`rate per ${unit}`, path("M0 6h18", demand, 2.4)],
    ...band,
    ["below: share of zones' time out of stock", box(withAlpha(lost, 0.3))],
  ] : [
    ["observed", dot(false)],
    ["observed, with a stock-out", dot(true)],
    ["lost", drawn("path", { d: "M9 12V1M5 1h8", stroke: lost, "stroke-width": 2, fill: "none" })],
    [`rate per ${unit}`, drawn("path", { d: "M0 6h18", stroke: demand, "stroke-width": 2.4 })],
    ...band,
    ["out of stock", box(withAlpha(lost, 0.3))],
    ...(part.off.some((v) => v > 0) ? [["closed or unknown", box(withAlpha(muted, 0.3))]] : []),
  ];
  byId("keys").replaceChildren(
    ...keys.map(([text, sign]) => {
      const picture = drawn("svg", { viewBox: "0 0 18 12", "aria-hidden": "true" });
      picture.append(sign);
      return element("li", {}, picture, text);
    })
  );
}

/** Columns behind the series, the stronger the longer it was so. */
function _shade(part, name, tone, strength) {
  const base = colour(tone);
  const edges = [...part.at, part.at[part.at.length - 1] + part.step];
  return {
    type: "heatmap", x: edges, y: [0, 1], z: [part[name].map((v) => (v > 0 ? v : null))], zmin: 0, zmax: 1, yaxis: "y2",
    colorscale: [[0, withAlpha(base, 0.06)], [1, withAlpha(base, strength)]], showscale: false, hoverinfo: "skip",
  };
}

function _layout(part, unit) {
  const inside = part.middle.map((t) => t >= shown.from && t <= shown.to);
  let [bottom, top] = [0, 1];
  ["high", "observed", "low"].forEach((name) =>
    part[name].forEach((v, k) => {
      if (!inside[k] || Number.isNaN(v)) return;
      top = Math.max(top, v + (name === "observed" ? part.lost[k] || 0 : 0));
      bottom = Math.min(bottom, v);
    })
  );
  shown.left = 25 + 7 * Math.max(String(Math.round(top)).length, 3);
  const ahead = data.bins.future === null ? null : clock.bins[data.bins.future];
  const line = { type: "line", x0: ahead, x1: ahead, yref: "paper", y0: 0, y1: 1, line: { color: colour("muted"), width: 1, dash: "dot" } };
  const note = { x: ahead, y: 1, yref: "paper", xanchor: "left", yanchor: "top", showarrow: false, text: " forecast", font: { color: colour("muted"), size: 11 } };
  const visible = ahead !== null && ahead > shown.from && ahead < shown.to;
  return {
    ...baseLayout(),
    margin: { l: shown.left, r: 8, t: 8, b: 34 },
    showlegend: false,
    hovermode: "x",
    dragmode: touch ? false : "zoom", // a finger on a chart scrolls the page
    xaxis: { ...axis(), type: "date", range: [shown.from, shown.to], showgrid: false, hoverformat: "%a %-d %b %Y", showspikes: false, anchor: part.sum ? "y3" : "y" },
    yaxis: { ...axis(), ...(part.sum ? { domain: [0.3, 1] } : { overlaying: "y2" }), range: [bottom * 1.06, top * 1.06], fixedrange: true, title: axisTitle(`trips per ${unit}`) , tickmode: "auto", zeroline: false },
    ...(part.sum
      ? { yaxis3: { ...axis(), domain: [0, 0.22], rangemode: "tozero", fixedrange: true, zeroline: false, nticks: 3, ticksuffix: "%", title: axisTitle("empty") } }
      : { yaxis2: { range: [0, 1], visible: false, fixedrange: true } }),
    shapes: visible ? [line] : [],
    annotations: visible ? [note] : [],
  };
}

/** A band between two limits, in one piece for each stretch without gaps. */
function bandTrace(x, low, high, fillcolor, more = {}) {
  const points = { x: [], y: [] };
  const close = (from, to) => {
    const turn = [...Array(to - from).keys()].map((k) => from + k);
    const back = [...turn].reverse();
    points.x.push(...turn.map((k) => x[k]), ...back.map((k) => x[k]), null);
    points.y.push(...turn.map((k) => high[k]), ...back.map((k) => low[k]), null);
  };
  let from = null;
  for (let k = 0; k <= x.length; k++) {
    const there = k < x.length && known(low[k]) && known(high[k]);
    if (there && from === null) from = k;
    if (!there && from !== null) {
      close(from, k);
      from = null;
    }
  }
  return { ...points, type: "scatter", mode: "lines", line: { width: 0 }, fill: "toself", fillcolor, hoverinfo: "skip", ...more };
}

const axis = () => ({ gridcolor: colour("line"), linecolor: colour("line"), zerolinecolor: colour("line"), tickfont: { size: 11 }, automargin: false });
// On paper the page is scaled, which the measured distance from the labels does not take into account.
const axisTitle = (text) => ({ text, font: { size: 11 }, ...(document.documentElement.classList.contains("printing") ? {} : { standoff: 4 }) });
const baseLayout = () => ({
  paper_bgcolor: "rgba(0,0,0,0)",
  plot_bgcolor: "rgba(0,0,0,0)",
  font: { family: getComputedStyle(document.body).fontFamily, color: colour("ink"), size: 12 },
  hoverlabel: { bgcolor: colour("card"), bordercolor: colour("line"), font: { color: colour("ink"), size: 12 }, align: "left" },
  modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("muted"), activecolor: colour("ink") },
  autosize: true,
});

// ---- the whole period in small, to choose from

function drawStrip(own) {
  const days = own.days;
  const asked = Array.from(clock.days, (t) => chosen.days === null || inChoice(t + _hourOfPart()));
  const blank = (v, k) => (Number.isNaN(v) || !asked[k] ? 0 : v);
  const area = (y, name, tone, alpha) => ({
    x: Array.from(clock.days), y: Array.from(y, blank), type: "scatter", mode: "lines", stackgroup: "one", name,
    line: { width: 0.8, color: colour(tone), shape: "hvh" }, fillcolor: withAlpha(colour(tone), alpha), hoverinfo: "skip",
  });
  const [start, end] = _period();
  const box = { type: "rect", xref: "x", yref: "paper", y0: 0, y1: 1, line: { width: 0 }, fillcolor: withAlpha(colour("muted"), 0.3), layer: "above" };
  const layout = {
    ...baseLayout(), showlegend: false, dragmode: "select", selectdirection: "h", hovermode: false,
    margin: { l: shown.left, r: 8, t: 4, b: 30 },
    xaxis: { ...axis(), type: "date", range: [start, end], fixedrange: true, showgrid: false },
    yaxis: { visible: false, fixedrange: true, rangemode: "tozero" },
    shapes: [{ ...box, x0: start, x1: shown.from }, { ...box, x0: shown.to, x1: end }],
    selections: [],
  };
  Plotly.react(byId("strip"), [area(days.observed, "observed", "demand", 0.3), area(days.lost, "lost", "lost", 0.7)], layout, { responsive: true, displayModeBar: false });
}

/** Plotly's times are by the local wall clock as if it were UTC; give them back as such. */
const _moment = (value) => (typeof value === "number" ? value : Date.parse(`${String(value).replace(" ", "T")}Z`));

function listenToSeries() {
  byId("series").on("plotly_relayout", (change) => {
    if (change["xaxis.autorange"]) setWindow(..._period());
    else if ("xaxis.range[0]" in change) setWindow(_moment(change["xaxis.range[0]"]), _moment(change["xaxis.range[1]"]));
    else return;
    _moved();
  });
  byId("strip").on("plotly_selected", (event) => {
    if (!event || !event.range) return;
    setWindow(...event.range.x.map(_moment));
    _moved();
  });
}

// ---- the week

async function drawWeek() {
  const zone = shown.zone;
  const week = await weekOf(zone);
  if (zone !== shown.zone) return;
  const perHour = data.bins.minutes < 1440;
  const hours = perHour ? 24 : 1;
  const slots = WEEKDAYS.map((_, d) => Array.from({ length: hours }, (_, h) => d * 24 + h));
  const length = perHour ? data.bins.minutes / 60 : 1; // of a bin, in what is counted per
  const mean = (total, slot) => (week.bins[slot] > 0 && known(total) ? total / (week.bins[slot] * length) : null);
  const asked = (s) => inChoice(MONDAY + s * 3600000);
  const observed = slots.map((day) => day.map((s) => (asked(s) ? mean(week.observed[s], s) : null)));
  const demand = slots.map((day) => day.map((s) => (asked(s) ? mean(week.demand[s], s) : null)));
  const lost = slots.map((day) => day.map((s) => (asked(s) ? mean(week.lost[s], s) : null)));
  const facts = slots.map((day) => day.map((s) => [
    number(week.lost[s]), interval(week.low[s], week.high[s]), percent(week.open[s] > 0 ? week.stockout[s] / week.open[s] : NaN),
    week.extrapolated[s] > 0 ? "<br>never had supply: extrapolated" : "", slotName(day[0] + (s % 24)),
  ]));
  const top = Math.max(...demand.flat().filter(known), ...observed.flat().filter(known), 0);
  const topLost = Math.max(...lost.flat().filter(known), 0);
  const phone = byId("week").clientWidth < 520;
  byId("week-title").textContent = `Average week: trips per ${perHour ? "hour" : data.period.bin}`;
  const turn = (grid) => (perHour ? grid : [grid.map((day) => day[0])]);
  const map = (z, name, k) => ({
    type: "heatmap", z: turn(z), customdata: turn(facts), x: perHour ? slots[0] : WEEKDAYS, y: perHour ? WEEKDAYS : [""], name,
    xaxis: `x${k}`, yaxis: `y${k}`, coloraxis: k === "3" ? "coloraxis2" : "coloraxis", xgap: 1, ygap: 1, hoverongaps: false,
    hovertemplate: `%{customdata[4]}<br>${name} %{z:.3~g}<br>lost %{customdata[0]} in total (%{customdata[1]})<br>out of stock %{customdata[2]}%{customdata[3]}<extra></extra>`,
  });
  const x = { ...axis(), showgrid: false, zeroline: false, fixedrange: true, ticks: "", ...(perHour ? { tickvals: [0, 6, 12, 18], ticktext: ["00:00", "06:00", "12:00", "18:00"], range: [-0.5, 23.5] } : {}) };
  const y = { ...axis(), showgrid: false, zeroline: false, fixedrange: true, autorange: "reversed", ticks: "" };
  const title = (text, xs, ys) => ({ text, x: xs, y: ys, xref: "paper", yref: "paper", xanchor: "left", yanchor: "bottom", showarrow: false, font: { size: 12 } });
  const across = (place) => (phone ? [0, 1] : [0.345 * place, 0.345 * place + 0.31]);
  const down = (place) => (phone ? [0.72 - 0.36 * place, 1 - 0.36 * place] : [0, 1]);
  const layout = {
    ...baseLayout(),
    margin: { l: 36, r: 4, t: 20, b: 22 },
    coloraxis: { colorscale: plotlyScale("demand"), cmin: 0, cmax: top || 1, colorbar: { thickness: 10, len: 1, outlinewidth: 0, tickfont: { size: 11 }, x: 1.01, xpad: 0 } },
    coloraxis2: { colorscale: plotlyScale("lost"), cmin: 0, cmax: topLost || 1, showscale: false },
    ...Object.fromEntries(["", "2", "3"].flatMap((k, place) => [
      [`xaxis${k}`, { ...x, domain: across(place), anchor: `y${k}`, showticklabels: !phone || place === 2 }],
      [`yaxis${k}`, { ...y, domain: down(place), anchor: `x${k}`, showticklabels: phone || !place }],
    ])),
    annotations: ["Observed", "Demand", `Lost, at most ${number(topLost)}`].map((text, place) => title(text, across(place)[0], down(place)[1])),
  };
  const printing = document.documentElement.classList.contains("printing");
  byId("week").style.height = phone ? (printing ? "300px" : "480px") : perHour ? "180px" : "110px";
  await Plotly.react(byId("week"), [map(observed, "observed", ""), map(failed(zone) ? demand.map((d) => d.map(() => null)) : demand, "demand", "2"), map(failed(zone) ? lost.map((d) => d.map(() => null)) : lost, "lost", "3")], layout, { responsive: true, displayModeBar: false });
}
