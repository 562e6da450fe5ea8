// The data, formatted numbers, and small helpers that every part uses.

const data = JSON.parse(document.getElementById("data").textContent);
const zones = data.zones;
const EVERY = -1; // all zones together, where a zone's number is asked for
const MISSING = 65535;
const DAY = 86400000;
const WEEKDAYS = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

const byId = (id) => document.getElementById(id);

/** An element with attributes and children. Strings become text, never markup. */
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function drawn(tag, attributes = {}) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

/** A cell of a table with the values behind its text, which a CSV file has instead of it. */
function cellOf(tag, attributes, text, ...values) {
  const made = element(tag, attributes, text);
  made.values = values;
  return made;
}

const known = (value) => value !== null && value !== undefined && !Number.isNaN(value);
const _whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** A number of trips: whole where it is large, with digits where it is small. */
function number(value) {
  if (!known(value)) return "–";
  const size = Math.abs(value);
  if (size >= 10 || Number.isInteger(value)) return _whole.format(value).replace("-", "−");
  return value.toFixed(size >= 1 ? 1 : 2).replace("-", "−");
}

/** A number with its noun, in the plural if needed. */
function counted(value, what) {
  return `${number(value)} ${what}${value === 1 ? "" : "s"}`;
}

/** Names in a row: "a, b and 3 more". */
function listed(names, most) {
  return names.length > most ? `${names.slice(0, most - 1).join(", ")} and ${names.length - most + 1} more` : names.join(", ");
}

/** A share as on the console: "12.7%". */
function percent(value) {
  if (!known(value)) return "–";
  const size = Math.abs(value) * 100;
  if (size > 0 && size < 0.01) return "< 0.01%";
  return `${(value * 100).toFixed(size === 0 || size >= 99.95 ? 0 : size >= 0.1 ? 1 : 2)}%`;
}

/** A change as a share, with its sign: "+13%". */
function change(value) {
  const size = Math.abs(100 * value).toFixed(0);
  return size === "0" ? "0%" : `${value > 0 ? "+" : "−"}${size}%`;
}

/** An interval, both ends to the same digits. */
function interval(low, high) {
  if (!known(low) || !known(high)) return "–";
  const whole = (value) => Math.abs(value - Math.round(value)) < 0.005; // packed numbers are rounded
  const digits = Math.abs(high) >= 10 || (whole(low) && whole(high)) ? 0 : Math.abs(high) >= 1 ? 1 : 2;
  const show = (value) => (digits ? value.toFixed(digits) : _whole.format(Math.round(value) + 0)).replace("-", "−"); // never "-0"
  return `${show(low)} – ${show(high)}`;
}

/** Names cut to a length: at their end, or in the middle where several would then read the same. */
function shortNames(names, most) {
  const cut = (name, from) => {
    const points = Array.from(name);
    return points.length > most ? `${points.slice(0, from).join("")}…${points.slice(points.length - most + from + 1).join("")}` : name;
  };
  const first = names.map((name) => cut(name, most - 1));
  return first.map((short, k) => (first.some((other, n) => n !== k && other === short) ? cut(names[k], Math.floor(most / 2)) : short));
}

/** Plotly reads some markup in its texts: make names plain, and short enough for an axis. */
function plain(text, most = 200) {
  const points = Array.from(text);
  const short = points.length > most ? points.slice(0, most - 1).join("") + "…" : text;
  return short.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/\$/g, "&#36;");
}

/** A weather column with its unit: "precipitation (mm)". */
function columnText(name) {
  const [label, unit] = data.columns[name] || [name, ""];
  return unit ? `${label}, ${unit}` : `${label}, in the unit of the file`;
}
const columnName = (name) => (data.columns[name] || [name])[0];
const columnUnit = (name) => ((data.columns[name] || [])[1] ? ` ${data.columns[name][1]}` : "");

const zoneName = (i) => (i !== EVERY ? zones.name[i] : chosen.area === null ? "All zones" : chosen.area);
const whyFailed = (i) => zones.reason[i] || "no reason recorded";
const failed = (i) => i !== EVERY && zones.status[i] !== "ok";

/** Hour of the week as words; only the day where bins are that long. */
function slotName(slot) {
  const day = WEEKDAYS[Math.floor(slot / 24)];
  return data.bins.minutes >= 1440 ? day : `${day} ${String(slot % 24).padStart(2, "0")}:00`;
}

// ---- unpacking: see unmet/report/packing.py

async function inflate(text) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

async function integers(text) {
  const bytes = await inflate(text);
  const view = new DataView(bytes.buffer);
  const values = new Float64Array(bytes.length / 4);
  let sum = 0;
  for (let i = 0; i < values.length; i++) values[i] = sum += view.getInt32(4 * i, true);
  return values;
}

/** Series of these lengths, one after the other, as numbers; NaN where missing. */
async function series(packed, lengths) {
  const bytes = await inflate(packed.data);
  const half = bytes.length / 2;
  let at = 0;
  return lengths.map((length, k) => {
    const [offset, step] = packed.scales[k];
    const values = new Float64Array(length);
    for (let i = 0; i < length; i++, at++) {
      const raw = bytes[at] | (bytes[half + at] << 8);
      values[i] = raw === MISSING ? NaN : offset + step * raw;
    }
    return values;
  });
}

let clock; // when bins and days start, as milliseconds by the local wall clock
async function readClock() {
  const [bins, days] = await Promise.all([integers(data.bins.local), integers(data.bins.days)]);
  clock = { bins: bins.map((m) => m * 60000), days: days.map((d) => d * DAY) };
}

const packedOf = (i) => (i !== EVERY ? data.series[i] : chosen.area === null ? data.system : data.areas[chosen.area]);
const _keyOf = (i) => (i === EVERY ? `every ${chosen.area}` : i);
const _drawnOf = new Map();
const _weekOf = new Map();

/** The bins and the days of a zone: {bins: {observed, rate, low, ...}, days: {...}}. */
function drawnOf(i) {
  const key = _keyOf(i);
  if (!_drawnOf.has(key)) _drawnOf.set(key, _readDrawn(i));
  return _drawnOf.get(key);
}

async function _readDrawn(i) {
  const names = data.fields.drawn;
  const lengths = [...names.map(() => clock.bins.length), ...names.map(() => clock.days.length)];
  const all = await series(packedOf(i).drawn, lengths);
  return { bins: _named(all.slice(0, names.length)), days: _named(all.slice(names.length)) };
}

function _named(columns) {
  const own = Object.fromEntries(data.fields.drawn.map((name, k) => [name, columns[k]]));
  own.low = own.rate.map((r, k) => r - own.below[k]);
  own.high = own.rate.map((r, k) => r + own.above[k]);
  return own;
}

/** The days of a zone, or of a sum of zones, in a part of the day. */
async function partDaysOf(i, part) {
  const packed = packedOf(i).parts;
  if (packed) return _named(await series(packed[part], data.fields.drawn.map(() => clock.days.length)));
  const { bins } = await drawnOf(i);
  const place = new Map(Array.from(clock.days, (day, k) => [day, k]));
  const empty = () => new Float64Array(clock.days.length).fill(NaN);
  const days = Object.fromEntries(["observed", "rate", "low", "high", "lost", "stockout", "off"].map((name) => [name, empty()]));
  const counted = { stockout: empty(), off: empty() };
  const [from, to] = data.story.parts[part];
  const add = (values, k, value) => (values[k] = (Number.isNaN(values[k]) ? 0 : values[k]) + value);
  clock.bins.forEach((time, b) => {
    const hour = new Date(time).getUTCHours();
    if (hour < from || hour >= to) return;
    const k = place.get(Math.floor(time / DAY) * DAY);
    for (const name in days) {
      if (Number.isNaN(bins[name][b])) continue;
      add(days[name], k, bins[name][b]);
      if (counted[name]) add(counted[name], k, 1);
    }
  });
  for (const name in counted) days[name] = days[name].map((v, k) => v / counted[name][k]);
  return days;
}

/** The hours of the week of a zone. */
function weekOf(i) {
  const key = _keyOf(i);
  if (!_weekOf.has(key)) {
    const names = data.fields.week;
    const read = series(packedOf(i).week, names.map(() => 168));
    _weekOf.set(key, read.then((all) => Object.fromEntries(names.map((name, k) => [name, all[k]]))));
  }
  return _weekOf.get(key);
}

// ---- colours: all from the style sheet, so that light, dark and print agree

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const scaleOf = (name) => [0, 1, 2, 3, 4].map((k) => colour(`${name}-${k}`));
const plotlyScale = (name) => scaleOf(name).map((c, k) => [k / 4, c]);

function _channels(hex) {
  return [1, 3, 5].map((k) => parseInt(hex.slice(k, k + 2), 16));
}

/** Between the colours of a scale, by a share from 0 to 1. */
function mixed(scale, share) {
  const at = Math.min(Math.max(share, 0), 1) * (scale.length - 1);
  const k = Math.min(Math.floor(at), scale.length - 2);
  const [a, b] = [_channels(scale[k]), _channels(scale[k + 1])];
  return `rgb(${a.map((v, c) => Math.round(v + (b[c] - v) * (at - k))).join(",")})`;
}

function withAlpha(hex, alpha) {
  return `rgba(${_channels(hex).join(",")},${alpha})`;
}
