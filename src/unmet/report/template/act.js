// When and where to act: lost trips per hour out of stock, by zone and hour of the week.

const MOST_ZONES = 14;

const acting = { top: 1, table: null };

const _inAct = (k) => inArea(data.act.number[k]) && inChoice(MONDAY + data.act.hour_of_week[k] * 3600000);

function buildAct(choose) {
  const act = data.act;
  const share = (k) => act.stockout_hours[k] / act.open_hours[k];
  acting.table = sortableTable({
    place: byId("act-table"),
    caption: "Zones and hours of the week with most lost trips per hour out of stock",
    rows: act.number.map((_, k) => k),
    choose,
    zoneOf: (k) => act.number[k],
    first: "rate",
    wanted: () => false, // until the choice is known
    columns: [
      { key: "zone", label: "Zone", text: true, value: (k) => zones.name[act.number[k]], show: (k) => zones.name[act.number[k]] },
      { key: "slot", label: "When", hint: "Hour of the week, local time", value: (k) => act.hour_of_week[k], csv: (k) => [slotName(act.hour_of_week[k])], show: (k) => slotName(act.hour_of_week[k]) },
      { key: "rate", label: "Lost per hour out of stock", hint: "Lost trips per hour out of stock", value: (k) => act.lost_per_stockout_hour[k], show: (k) => number(act.lost_per_stockout_hour[k]), bar: (k) => act.lost_per_stockout_hour[k] / acting.top },
      { key: "lost", label: "Lost in total", hint: "Lost trips in the whole period", value: (k) => act.lost_mean[k], show: (k) => number(act.lost_mean[k]) },
      intervalColumn("interval", "lost in total", (k) => [act.lost_q05[k], act.lost_q95[k]]),
      { key: "share", label: "Time empty", hint: "Share of the open time out of stock", value: share, show: (k) => percent(share(k)) },
    ],
  });
  return acting.table;
}

/** The first rows of the choice, which are in order, and their heat map. */
async function drawAct() {
  const some = data.act.number.map((_, k) => k).filter(_inAct).slice(0, data.act.rows);
  byId("act-lead").textContent = some.length
    ? "Lost trips per hour out of stock, by zone and hour of the week. Where this is highest, one more vehicle serves most riders. Only hours that are often empty are ranked: at least one hour in total, and 5% of the time open."
    : `No zone was out of stock often enough, at any hour of the week${anyChoice() ? ` ${choiceWords()}` : ""}, to be ranked.`;
  byId("act-body").hidden = !some.length;
  acting.top = some.length ? data.act.lost_per_stockout_hour[some[0]] : 1;
  const shown = new Set(some);
  acting.table.rebuild((k) => shown.has(k));
  if (!some.length) return;
  await _drawActMap();
}

/** Plotly adds `on` to a place when it first draws there; a choice without rows has not been drawn. */
async function listenToAct(choose) {
  if (!data.act.number.length) return;
  if (!byId("act-map").on) await Plotly.newPlot(byId("act-map"), [], baseLayout(), { displayModeBar: false });
  byId("act-map").on("plotly_click", (event) => choose(event.points[0].customdata[0]));
}

/** Heat map: rows are the zones with most lost trips, columns the hours of the week. */
async function _drawActMap() {
  const perHour = data.bins.minutes < 1440;
  const phone = byId("act-map").clientWidth < 520;
  const worst = zones.zone.map((_, i) => i).filter((i) => zones.lost_mean[i] > 0 && inArea(i));
  worst.sort((a, b) => zones.lost_mean[b] - zones.lost_mean[a]);
  const rows = worst.slice(0, MOST_ZONES);
  const weeks = await Promise.all(rows.map(weekOf));
  const slots = perHour ? Array.from({ length: 168 }, (_, s) => s) : WEEKDAYS.map((_, d) => 24 * d);
  const cost = (week, s) => (week.stockout[s] > 0 && known(week.lost[s]) ? week.lost[s] / (week.stockout[s] / 60) : null);
  // Rare stock-outs are left blank, as in the table.
  const habit = (week, s) => inChoice(MONDAY + s * 3600000) && week.stockout[s] >= 60 && week.stockout[s] >= 0.05 * week.open[s];
  const z = weeks.map((week) => slots.map((s) => (habit(week, s) ? cost(week, s) : null)));
  const facts = weeks.map((week, r) => slots.map((s) => [
    rows[r], plain(zones.name[rows[r]], 60), slotName(s), number(week.lost[s]), interval(week.low[s], week.high[s]),
    percent(week.open[s] > 0 ? week.stockout[s] / week.open[s] : NaN),
  ]));
  const names = shortNames(rows.map((i) => zones.name[i]), phone ? 13 : 20).map((name) => plain(name));
  const days = perHour ? WEEKDAYS.map((_, d) => 24 * d) : slots;
  const layout = {
    ...baseLayout(),
    margin: { l: phone ? 92 : 150, r: 4, t: 6, b: 24 },
    xaxis: { ...axis(), showgrid: false, zeroline: false, fixedrange: true, tickvals: days.map((d) => d + (perHour ? 11.5 : 0)), ticktext: WEEKDAYS, ticks: "" },
    yaxis: { ...axis(), showgrid: false, zeroline: false, fixedrange: true, autorange: "reversed", tickvals: rows.map((_, r) => r), ticktext: names, ticks: "" },
    coloraxis: { colorscale: plotlyScale("lost"), cmin: 0, colorbar: { title: { text: "lost per hour out of stock", side: "right", font: { size: 10.5 } }, thickness: 10, len: 1, outlinewidth: 0, tickfont: { size: 11 }, x: 1.01, xpad: 0 } },
    shapes: perHour ? days.slice(1).map((d) => ({ type: "line", x0: d - 0.5, x1: d - 0.5, yref: "paper", y0: 0, y1: 1, line: { color: colour("line"), width: 1 } })) : [],
  };
  byId("act-map").style.height = `${Math.max(26 * rows.length + 40, 130)}px`;
  const trace = {
    type: "heatmap", z, customdata: facts, x: slots, y: rows.map((_, r) => r), coloraxis: "coloraxis", ygap: 2, hoverongaps: false,
    hovertemplate: "<b>%{customdata[1]}</b><br>%{customdata[2]}: %{z:.3~g} lost per hour out of stock<br>lost %{customdata[3]} in total (%{customdata[4]}), out of stock %{customdata[5]}<extra></extra>",
  };
  await Plotly.react(byId("act-map"), [trace], layout, { responsive: true, displayModeBar: false });
}
