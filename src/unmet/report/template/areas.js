// Areas: the sums of each and their change, and a way to choose one.

const AREA_WORDS = { better: "better", worse: "worse", unclear: "no clear change" };
const areaTable = { made: null, most: 1 };

const _areaSums = (k) => choiceOf(data.story.areas[k]).totals;
const _areaChange = (k) => choiceOf(data.story.areas[k]).compare[chosen.pair] || {};

/** Points of a share, with their sign: "−1.2", or "−0.02" below 0.1; without one if they round to nothing. */
function _points(share) {
  if (!known(share)) return "–";
  const text = Math.abs(100 * share).toFixed(Math.abs(share) < 0.001 ? 2 : 1);
  return text === "0.00" ? "0.0" : `${share > 0 ? "+" : "−"}${text}`;
}

function buildAreas() {
  const names = data.story.areas;
  byId("areas").hidden = !names.length;
  if (!names.length) return;
  const counts = (k, is) => zones.zone.filter((_, i) => zones.area[i] === names[k] && is(i)).length;
  const sum = (key, label, hint, more = {}) => ({ key, label, hint, value: (k) => _areaSums(k)[key].mean, show: (k) => number(Math.round(_areaSums(k)[key].mean)), ...more });
  const limits = (key, of) => ({ ...intervalColumn(`${key}_interval`, of, (k) => [_areaSums(k)[key].q05, _areaSums(k)[key].q95]), show: (k) => interval(Math.round(_areaSums(k)[key].q05), Math.round(_areaSums(k)[key].q95)) });
  const share = (k) => (_areaSums(k).wanted.mean > 0 ? _areaSums(k).lost.mean / _areaSums(k).wanted.mean : null);
  const changes = (k) => [_areaChange(k).change_q05, _areaChange(k).change_q95];
  const verdict = (k) => AREA_WORDS[_areaChange(k).verdict] || "–";
  areaTable.made = sortableTable({
    place: byId("areas-table"),
    caption: "Sums of zones by area, and the change of the share lost",
    rows: names.map((_, k) => k),
    choose: (k) => setChoice({ area: chosen.area === names[k] ? null : names[k] }),
    zoneOf: (k) => k,
    first: "lost",
    columns: [
      { key: "area", label: "Area", text: true, value: (k) => names[k], show: (k) => names[k] },
      sum("lost", "Lost trips", "Riders who found nothing and were served nowhere", { bar: (k) => _areaSums(k).lost.mean / areaTable.most }),
      limits("lost", "lost trips"),
      { key: "share", label: "Share lost", hint: "Share of demand that was lost", value: share, show: (k) => percent(share(k)) },
      { key: "verdict", label: "Getting better?", text: true, hint: "Whether the share lost fell, if that is 95% sure", value: verdict, show: (k) => element("span", { class: _areaChange(k).verdict }, verdict(k)) },
      { key: "change", label: "Change, points", hint: "Change of the share lost, in percentage points", value: (k) => _areaChange(k).change, csv: (k) => [100 * _areaChange(k).change], show: (k) => _points(_areaChange(k).change) },
      { ...intervalColumn("change_interval", "change, points", changes), csv: (k) => changes(k).map((v) => 100 * v), show: (k) => (changes(k).every(known) ? [...new Set(changes(k).map(_points))].join(" to ") : "–") },
      { key: "observed", label: "Observed trips", hint: "Trips that were recorded", value: (k) => choiceOf(names[k]).observed, show: (k) => number(choiceOf(names[k]).observed) },
      sum("wanted", "Demand", "Riders who came to a zone of the area first, served or not"),
      limits("wanted", "demand"),
      { key: "zones", label: "Zones", hint: "Zones in the sums, and those left out", heads: ["Zones in the sums", "Zones left out"], csv: (k) => [counts(k, _summed), counts(k, (i) => !_summed(i))],
        value: (k) => counts(k, _summed), show: (k) => `${counts(k, _summed)}${counts(k, (i) => !_summed(i)) ? ` (${counts(k, (i) => !_summed(i))} left out)` : ""}` },
    ],
  });
}

const _summed = (i) => !failed(i) && !leftOut(i);

/** The rows in the chosen days and hours; that of the chosen area is marked. */
function drawAreas() {
  if (!areaTable.made) return;
  const names = data.story.areas;
  const [some, pair] = [{ ...chosen, area: null }, data.story.pairs[chosen.pair]];
  const when = choiceWords(some) ? `${capital(choiceWords(some))}. ` : "";
  byId("areas-lead").textContent = `${when}Choose one to see the whole page for it${chosen.area === null ? "" : "; again to see all"}. ${pair ? `Change of the share lost: ${pair.words}.` : ""}`;
  areaTable.most = Math.max(...names.map((_, k) => _areaSums(k).lost.mean), 1e-9);
  areaTable.made.rebuild();
  areaTable.made.mark(names.indexOf(chosen.area));
}
