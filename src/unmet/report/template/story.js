// The story of the period: riders by week, whether it is getting better, and the choice of area, days and hours.

const chosen = { area: null, days: null, part: null, pair: 0 };
zones.open_hours = zones.available_hours.map((v, i) => v + zones.stockout_hours[i]);
const _everyZone = Object.fromEntries(["observed", "demand_mean", "lost_mean", "lost_q05", "lost_q95", "stockout_hours", "open_hours", "stockout_share", "lost_share", "true_demand"].filter((name) => zones[name]).map((name) => [name, zones[name]]));
const WEEK_TONES = { served: "demand", walked_on: "walked", lost: "lost" };
const WEEK_NAMES = { wanted: "wanted", served: "served", walked_on: "walked on", lost: "lost" };

const leftOut = (i) => i !== EVERY && zones.left_out && known(zones.left_out[i]);
const inArea = (i) => chosen.area === null || zones.area[i] === chosen.area;
const anyChoice = () => chosen.area !== null || chosen.days !== null || chosen.part !== null;

/** Whether bins that start then are in the chosen days and hours; times are by the local clock as if it were UTC. */
function inChoice(time) {
  if (!_inDays(time)) return false;
  if (chosen.part === null) return true;
  const hour = new Date(time).getUTCHours();
  const [from, to] = data.story.parts[chosen.part];
  return hour >= from && hour < to;
}

function _inDays(time) {
  const day = new Date(time).getUTCDay();
  return chosen.days === null || (day === 0 || day === 6) === (chosen.days === "weekends");
}

/** How many days of the record are in the choice. */
function daysOfChoice() {
  if (chosen.days === null) return Math.round(data.period.days);
  const [start, end] = ["start", "end"].map((name) => Date.parse(`${data.period[name].replace(" ", "T")}Z`));
  return Array.from(clock.days).filter((day) => day + DAY > start && day < end && _inDays(day)).length;
}

/** Sums and comparisons of an area in the chosen days and hours. */
const choiceOf = (area) =>
  data.story.choices.find(({ choice }) => choice[0] === area && choice[1] === chosen.days && choice[2] === chosen.part);
const _choice = () => choiceOf(chosen.area);

/** The choice in words: "in North, on weekdays, from 06:00 to 10:00"; empty for everything. */
function choiceWords({ area, days, part } = chosen) {
  const words = [];
  if (area !== null) words.push(`in ${area}`);
  if (days !== null) words.push(`on ${days}`);
  if (part !== null) words.push(`from ${data.story.parts[part].map((h) => String(h).padStart(2, "0") + ":00").join(" to ")}`);
  return words.join(", ");
}

const capital = (text) => text[0].toUpperCase() + text.slice(1);

/** Headline numbers of the choice, in the form of `data.headline`. */
function headlineOfChoice() {
  const found = _choice();
  if (!anyChoice() || !found) return data.headline;
  const { wanted, lost, walked_on } = found.totals;
  const some = zones.zone.map((_, i) => i).filter((i) => inArea(i) && !failed(i) && !leftOut(i));
  const time = { stockout: 0, open: 0 };
  for (const i of some) {
    time.open += zones.open_hours[i] || 0;
    time.stockout += zones.stockout_hours[i] || 0;
  }
  return {
    ...data.headline, observed: { mean: found.observed }, demand: wanted, lost, walked_on,
    lost_share: wanted.mean > 0 ? lost.mean / wanted.mean : null,
    stockout_share: time.open > 0 ? time.stockout / time.open : null, stockout_hours: time.stockout,
    zones: { ...data.headline.zones, chosen: some.length }, true_demand: undefined,
  };
}

/** Put the numbers of the choice into `zones`, which map, table and cards read. */
async function _readChoice() {
  Object.assign(zones, _everyZone);
  if (chosen.days === null && chosen.part === null) return;
  if (zones.true_demand) zones.true_demand = zones.zone.map(() => null); // not known by part of the day
  const packed = data.parts.find((own) => own.days === chosen.days && own.part === chosen.part);
  const columns = await series(packed, packed.fields.map(() => zones.zone.length));
  packed.fields.forEach((name, k) => (zones[name] = Array.from(columns[k], (v) => (Number.isNaN(v) ? null : v))));
  zones.lost_share = zones.lost_mean.map((v, i) => (known(v) && zones.demand_mean[i] > 0 ? v / zones.demand_mean[i] : null));
}

// ---- the choice

let setChoice; // choose days or a part of the day from elsewhere on the page
const partText = (part) => data.story.parts[part].map((hour) => `${String(hour).padStart(2, "0")}:00`).join(" – ");

function buildChoice(changed) {
  const { areas, days, parts } = data.story;
  const place = byId("choice");
  const add = (name, label, options) => {
    if (!options.length) return;
    const select = element("select", { id: `choice-${name}` }, element("option", { value: "" }, label));
    for (const [value, text] of options) select.append(element("option", { value }, text));
    select.addEventListener("change", async () => {
      chosen[name] = select.value || null;
      await applyChoice(changed);
    });
    place.append(element("label", {}, element("span", { class: "unseen" }, label), select));
  };
  add("area", "All areas", areas.map((name) => [name, name]));
  add("days", "All days", days.map((name) => [name, capital(name)]));
  add("part", "All hours", Object.keys(parts).map((name) => [name, `${capital(name)}, ${partText(name)}`]));
  const reset = element("button", { type: "button", id: "choice-reset", hidden: "" }, "Show all");
  reset.addEventListener("click", async () => {
    Object.assign(chosen, { area: null, days: null, part: null });
    await applyChoice(changed);
    place.querySelector("select").focus(); // this button is gone
  });
  setChoice = async (some) => {
    Object.assign(chosen, some);
    await applyChoice(changed);
  };
  place.append(reset);
  byId("choice-bar").hidden = !place.querySelector("select");
}

async function applyChoice(changed) {
  for (const name of ["area", "days", "part"]) {
    const select = byId(`choice-${name}`);
    if (select) select.value = chosen[name] || "";
  }
  byId("choice-reset").hidden = !anyChoice();
  byId("choice-words").textContent = anyChoice() ? `This page shows riders ${choiceWords()}.` : "";
  await _readChoice();
  await changed();
}

// ---- riders by week

const _weeksOf = new Map();
function _weeks() {
  const found = _choice();
  if (!_weeksOf.has(found)) {
    const names = [...data.story.quantities, "share"];
    const read = series(found.weeks, names.flatMap(() => [0, 0, 0].map(() => data.story.weeks.length)));
    _weeksOf.set(found, read.then((all) => Object.fromEntries(names.map((name, k) => [name, { mean: all[3 * k], low: all[3 * k + 1], high: all[3 * k + 2] }]))));
  }
  return _weeksOf.get(found);
}

function buildStory() {
  if (!data.story.choices.length) {
    byId("story").hidden = true;
    return;
  }
  const pairs = data.story.pairs;
  const select = byId("story-pair");
  pairs.forEach((pair, k) => select.append(element("option", { value: k }, pair.words)));
  select.parentElement.hidden = pairs.length < 2;
  select.addEventListener("change", () => {
    chosen.pair = Number(select.value);
    _answer();
    drawAreas();
  });
}

/** Is it getting better? One sentence. */
function _answer() {
  const found = _choice();
  const own = found && found.compare[chosen.pair];
  const place = byId("story-answer");
  if (!own) {
    place.replaceChildren("The record is too short to compare: it needs at least two whole weeks, from Monday to Sunday.");
    return;
  }
  const [answer, ...rest] = own.sentence.split(":");
  const where = choiceWords();
  place.replaceChildren(element("strong", { class: own.verdict }, answer), `${where ? ` (${where})` : ""}:${rest.join(":")}${_answerByArea(own.verdict)}`);
}

/** Areas whose answer differs from that of all together: " But worse in Centre." */
function _answerByArea(verdict) {
  if (chosen.area !== null || data.story.areas.length < 2) return "";
  const others = ["better", "worse"].filter((one) => one !== verdict).map((one) => [one, data.story.areas.filter((area) => ((choiceOf(area) || {}).compare || [])[chosen.pair]?.verdict === one)]);
  const parts = others.filter(([, names]) => names.length).map(([one, names]) => `${one} in ${listed(names, 4)}`);
  return parts.length ? ` But ${parts.join(", ")}.` : ` No area ${verdict === "unclear" ? "has a clear change" : `got ${verdict === "better" ? "worse" : "better"}`}.`;
}

const _weekEnd = (k) => Date.parse(data.story.weeks[k]) + 7 * DAY;
const _day = (t) => new Date(t).toLocaleDateString("en-GB", { weekday: "short", day: "numeric", month: "short", year: "numeric", timeZone: "UTC" });

async function drawStory() {
  if (!data.story.choices.length) return;
  _answer();
  const found = _choice();
  const own = await _weeks();
  if (found !== _choice()) return;
  const start = data.story.weeks.map((day) => Date.parse(day));
  const middle = start.map((t) => t + 3.5 * DAY);
  const weather = _weatherColumns();
  const rows = [0.5, 0.3, ...weather.map(() => 0.13)];
  const total = rows.reduce((a, b) => a + b, 0) + 0.06 * (rows.length - 1);
  let top = 1;
  const domains = rows.map((height) => {
    const domain = [Math.max(top - height / total, 0), top];
    top -= (height + 0.06) / total;
    return domain;
  });
  const facts = start.map((_, k) => [_weekText(own, k)]);
  const bars = Object.entries(WEEK_TONES).map(([name, tone], n) => ({
    type: "bar", x: middle, y: Array.from(own[name].mean), width: 5.6 * DAY, name: WEEK_NAMES[name], marker: { color: colour(tone), opacity: data.story.whole.map((w) => (w ? 1 : 0.45)) },
    hoverinfo: n ? "skip" : undefined, ...(n ? {} : { customdata: facts, hovertemplate: "%{customdata[0]}<extra></extra>" }),
  }));
  const spread = (name) => ({
    type: "scatter", mode: "markers", x: middle, y: Array.from(own[name].mean), marker: { opacity: 0 }, hoverinfo: "skip",
    error_y: { type: "data", symmetric: false, array: Array.from(own[name].high, (v, k) => v - own[name].mean[k]), arrayminus: Array.from(own[name].mean, (v, k) => v - own[name].low[k]), color: colour("ink"), thickness: 1.2, width: 3 },
  });
  const line = (y, more) => ({ type: "scatter", mode: "lines", x: middle, y: Array.from(y, (v) => (Number.isNaN(v) ? null : 100 * v)), yaxis: "y2", hoverinfo: "skip", ...more });
  const lost = colour("lost");
  const traces = [
    ...bars, spread("wanted"),
    bandTrace(middle, own.share.low.map((v) => 100 * v), own.share.high.map((v) => 100 * v), withAlpha(lost, 0.25), { yaxis: "y2" }),
    line(own.share.mean, { mode: "lines+markers", line: { color: lost, width: 2 }, marker: { size: 5, color: lost }, hoverinfo: undefined, customdata: facts, hovertemplate: "%{customdata[0]}<extra></extra>" }),
    ..._unusual(own), ..._weatherTraces(weather, middle),
  ];
  const side = { ...axis(), fixedrange: true, zeroline: false, rangemode: "tozero" };
  const layout = {
    ...baseLayout(), barmode: "stack", showlegend: false, margin: { l: 58, r: 8, t: 8, b: 34 }, bargap: 0.15, hovermode: "closest", dragmode: false,
    xaxis: { ...axis(), type: "date", range: [start[0], _weekEnd(start.length - 1)], fixedrange: true, showgrid: false, anchor: `y${rows.length > 1 ? rows.length : ""}` },
    yaxis: { ...side, domain: domains[0], title: axisTitle("riders per week") },
    yaxis2: { ...side, domain: domains[1], ticksuffix: "%", title: axisTitle("lost") },
    ...Object.fromEntries(weather.map((name, k) => [`yaxis${k + 3}`, { ...side, rangemode: "normal", domain: domains[k + 2], nticks: 3 }])),
    annotations: weather.map((name, k) => ({ text: `${plain(columnText(name), 60)}; mean of the week`, x: 0, xref: "paper", y: domains[k + 2][1], yref: "paper", xanchor: "left", yanchor: "bottom", showarrow: false, font: { size: 10.5, color: colour("muted") } })),
  };
  byId("story-chart").style.height = `${250 + 56 * weather.length}px`;
  await Plotly.react(byId("story-chart"), traces, layout, { responsive: true, displayModeBar: false });
  _weekKeys();
  _weekTable(own);
}

function _weekText(own, k) {
  const line = (name) => `${WEEK_NAMES[name]} ${number(Math.round(own[name].mean[k]))} (${interval(Math.round(own[name].low[k]), Math.round(own[name].high[k]))})`;
  const share = `${percent(own.share.mean[k])} lost (${percent(own.share.low[k])} – ${percent(own.share.high[k])})`;
  const part = data.story.whole[k] ? "" : "<br>not a whole week of records";
  return `<b>${_day(Date.parse(data.story.weeks[k]))} – ${_day(_weekEnd(k) - 1)}</b><br>${data.story.quantities.map(line).join("<br>")}<br>${share}${part}`;
}

/** Days that no record explains, marked at the foot of the bars. */
function _unusual() {
  const days = data.story.unusual;
  if (!days.length) return [];
  return [{
    type: "scatter", mode: "markers", x: days.map((d) => Date.parse(d.day) + DAY / 2), y: days.map(() => 0), cliponaxis: false,
    marker: { symbol: days.map((d) => (d.change > 0 ? "triangle-up" : "triangle-down")), size: 10, color: colour("ink"), line: { color: colour("card"), width: 1.5 } },
    customdata: days.map((d) => [_day(Date.parse(d.day)), change(d.change)]),
    hovertemplate: "<b>%{customdata[0]}</b><br>unusual day: demand %{customdata[1]} beyond pattern, trend and weather<extra></extra>",
  }];
}

const _weatherColumns = () => Object.keys(data.story.weather).filter((name) => name !== "week").slice(0, 3);

function _weatherTraces(names, middle) {
  const at = new Map((data.story.weather.week || []).map((day, k) => [day, k]));
  return names.map((name, k) => {
    const values = data.story.weeks.map((day) => (at.has(day) ? data.story.weather[name][at.get(day)] : null));
    return {
      type: "scatter", mode: "lines+markers", x: middle, y: values, yaxis: `y${k + 3}`, line: { color: colour("muted"), width: 1.5 }, marker: { size: 4 },
      hovertemplate: `${plain(columnName(name), 40)}: %{y:.3~g}${plain(columnUnit(name))} (mean of the week)<extra></extra>`,
    };
  });
}

function _weekKeys() {
  const box = (tone) => drawn("rect", { x: 2, y: 0, width: 14, height: 12, rx: 2, fill: colour(tone) });
  const keys = [["served", box("demand")], ["walked on, served nearby", box("walked")], ["lost", box("lost")], ["90% interval of riders who came", drawn("path", { d: "M9 1v10M6 1h6M6 11h6", stroke: colour("ink"), "stroke-width": 1.4, fill: "none" })]];
  if (data.story.unusual.length) keys.push(["unusual day, beyond pattern and weather", drawn("path", { d: "M9 1l5 9h-10z", fill: colour("ink") })]);
  byId("story-keys").replaceChildren(...keys.map(([text, sign]) => {
    const picture = drawn("svg", { viewBox: "0 0 18 12", "aria-hidden": "true" });
    picture.append(sign);
    return element("li", {}, picture, text);
  }));
}

function _weekTable(own) {
  const whole = (v) => number(Math.round(v));
  const cell = (name, k, show = whole) => {
    const [mean, low, high] = [own[name].mean[k], own[name].low[k], own[name].high[k]];
    return cellOf("td", {}, `${show(mean)} (${show(low)} – ${show(high)})`, mean, low, high);
  };
  const names = { ...WEEK_NAMES, share: "share lost" };
  const quantities = [...data.story.quantities, "share"];
  const head = quantities.map((name) => cellOf("th", { scope: "col" }, `${capital(names[name])} (90%)`, names[name], `${names[name]}, 5%`, `${names[name]}, 95%`));
  const body = element("tbody");
  data.story.weeks.forEach((day, k) => {
    const first = cellOf("th", { scope: "row", class: "text" }, day + (data.story.whole[k] ? "" : " (part)"), day, data.story.whole[k] ? "whole" : "part");
    body.append(element("tr", {}, first, ...data.story.quantities.map((name) => cell(name, k)), cell("share", k, percent)));
  });
  const table = byId("story-weeks");
  table.replaceChildren(element("caption", { class: "unseen" }, "Riders by week"), element("thead", {}, element("tr", {}, cellOf("th", { scope: "col", class: "text" }, "Week from Monday", "week from Monday", "records"), ...head)), body);
}
