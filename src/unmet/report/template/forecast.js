// The forecast by hour, and the effects of weather and holidays.

const forecasting = { most: 1, table: null };

function buildForecast() {
  const forecast = data.forecast;
  byId("forecast").hidden = !forecast;
  if (!forecast) return;
  byId("forecast-missing").hidden = !forecast.missing;
  byId("forecast-missing").textContent = forecast.missing || "";
  const worst = forecast.worst;
  forecasting.table = sortableTable({
    place: byId("forecast-table"),
    caption: "Zones and hours with most riders who are expected to find nothing",
    rows: worst.number.map((_, k) => k),
    choose: () => {},
    zoneOf: (k) => worst.number[k],
    first: worst.expected_lost.some(known) ? "lost" : "riders",
    wanted: () => false, // until the choice is known
    columns: [
      { key: "zone", label: "Zone", text: true, value: (k) => zones.name[worst.number[k]], show: (k) => zones.name[worst.number[k]] },
      { key: "at", label: "When", hint: "Start and end of the hour, local time", value: (k) => worst.at[k], heads: ["Start", "End"], csv: (k) => [worst.at[k], worst.at[k] + 60000 * worst.minutes[k]].map((t) => new Date(t).toISOString().slice(0, 16)), show: (k) => binText(worst.at[k], worst.minutes[k]) },
      { key: "riders", label: "Riders expected", hint: "Expected riders", value: (k) => worst.demand_mean[k], show: (k) => number(worst.demand_mean[k]) },
      intervalColumn("interval", "riders expected", (k) => [worst.demand_q05[k], worst.demand_q95[k]]),
      { key: "risk", label: "Risk to find nothing", hint: "Chance that a rider who comes finds nothing, if no vehicle is moved", value: (k) => worst.risk[k], show: (k) => percent(worst.risk[k]) },
      { key: "lost", label: "Riders who find nothing", hint: "Riders expected to find nothing, if no vehicle is moved", value: (k) => worst.expected_lost[k], show: (k) => number(worst.expected_lost[k]), bar: (k) => (worst.expected_lost[k] || 0) / forecasting.most },
      { key: "usual", label: "Usually empty", hint: "Share of the open time out of stock at this hour of the week, in the records", value: (k) => worst.usual_out[k], show: (k) => percent(worst.usual_out[k]) },
    ],
  });
}

/** The sentence and the table of the choice. */
function _followForecast(own) {
  const worst = data.forecast.worst;
  const { sentence } = own.sentences.find(({ days, part }) => days === chosen.days && part === chosen.part);
  const where = anyChoice() ? `${capital(choiceWords())}: ` : "";
  byId("forecast-lead").textContent = `${where}${sentence} The risk is the chance that a rider who comes in that hour finds nothing, from the levels at the end of the records. After the first day, vans decide: there the usual share of time out of stock is shown.`;
  byId("forecast-plan").textContent = _againstPlan(own);
  const some = worst.number.map((_, k) => k).filter((k) => inArea(worst.number[k]) && inChoice(worst.at[k])).slice(0, data.forecast.rows);
  forecasting.most = Math.max(...some.map((k) => worst.expected_lost[k] || 0), 1e-9);
  const shown = new Set(some);
  forecasting.table.rebuild((k) => shown.has(k));
  byId("forecast-body").hidden = !some.length;
  return some.length > 0;
}

/** Why the plan, if it is of the same day, has another number of riders who find nothing. */
function _againstPlan(own) {
  const sums = !plan.missing && _planSums();
  if (!sums || chosen.days !== null || chosen.part !== null || !own.bins.risk.some(known)) return "";
  if (!plan.forecast) return "The plan above is not made from this forecast, which does not cover its whole day: their numbers differ.";
  const { no_bike, no_dock, mean } = sums.totals.now;
  const whole = (v) => number(Math.round(v));
  return `Why the plan for ${plan.words} has another number (${whole(mean)} turned away): it counts the ${whole(no_dock)} who find no dock too, and its ${whole(no_bike)} without a vehicle come from riders who ride through the whole city, where a trip that is not made brings no vehicle to the next station. The forecast follows each station by itself.`;
}

/** A bin in words, with its start and end: "Mon 27 May, 08:00 – 09:00". */
function binText(start, minutes) {
  const clock = (t) => new Date(t).toISOString().slice(11, 16);
  const [weekday, date] = [{ weekday: "short" }, { day: "numeric", month: "short" }].map((how) => new Date(start).toLocaleDateString("en-GB", { ...how, timeZone: "UTC" }));
  const day = `${weekday} ${date}`;
  return minutes >= 1440 ? day : `${day}, ${clock(start)} – ${clock(start + minutes * 60000)}`;
}

async function drawForecast() {
  if (!data.forecast) return;
  const own = data.forecast.areas.find(({ area }) => area === chosen.area);
  if (!_followForecast(own)) return;
  const bins = { ...own.bins };
  const asked = bins.at.map(inChoice);
  for (const name of ["rate_mean", "rate_q05", "rate_q95", "risk", "usual_out"]) bins[name] = bins[name].map((v, k) => (asked[k] ? v : null));
  const middle = bins.at.map((t, k) => t + bins.minutes[k] * 30000);
  const [demand, lost] = [colour("demand"), colour("lost")];
  const facts = bins.at.map((t, k) => [
    `<b>${binText(t, bins.minutes[k])}</b><br>expected riders ${number(bins.rate_mean[k])} (${interval(bins.rate_q05[k], bins.rate_q95[k])})` +
      (known(bins.risk[k]) ? `<br>risk to find nothing ${percent(bins.risk[k])}: ${counted(bins.expected_lost[k], "rider")}` : "") +
      `<br>usually out of stock ${percent(bins.usual_out[k])}`,
  ]);
  const line = (y, more) => ({ type: "scatter", mode: "lines", x: middle, y, hoverinfo: "skip", ...more });
  const share = (values) => values.map((v) => (known(v) ? 100 * v : null));
  const traces = [
    bandTrace(middle, bins.rate_q05, bins.rate_q95, withAlpha(demand, 0.22)),
    line(bins.rate_mean, { line: { color: demand, width: 2 }, hoverinfo: undefined, customdata: facts, hovertemplate: "%{customdata[0]}<extra></extra>" }),
    line(share(bins.usual_out), { yaxis: "y2", line: { color: lost, width: 1.4, dash: "dot" } }),
    line(share(bins.risk), { yaxis: "y2", line: { color: lost, width: 2 } }),
  ];
  const layout = {
    ...baseLayout(), showlegend: false, hovermode: "closest", hoverdistance: 60, dragmode: false, margin: { l: 58, r: 8, t: 8, b: 36 },
    xaxis: { ...axis(), type: "date", fixedrange: true, showgrid: false, anchor: "y2", range: [bins.at[0], bins.at[bins.at.length - 1] + bins.minutes[0] * 60000] },
    yaxis: { ...axis(), domain: [0.45, 1], rangemode: "tozero", fixedrange: true, zeroline: false, title: axisTitle(`riders per ${data.period.bin}`) },
    yaxis2: { ...axis(), domain: [0, 0.38], rangemode: "tozero", fixedrange: true, zeroline: false, ticksuffix: "%", title: axisTitle("of riders") },
  };
  const path = (tone, dash) => drawn("path", { d: "M0 6h18", stroke: colour(tone), "stroke-width": 2.4, ...(dash ? { "stroke-dasharray": "2 2" } : {}) });
  byId("forecast-keys").replaceChildren(...[["expected riders, with 90% band", path("demand")], ["risk to find nothing", path("lost")], ["usual share of time out of stock", path("lost", true)]].map(([text, sign]) => {
    const picture = drawn("svg", { viewBox: "0 0 18 12", "aria-hidden": "true" });
    picture.append(sign);
    return element("li", {}, picture, text);
  }));
  await Plotly.react(byId("forecast-chart"), traces, layout, { responsive: true, displayModeBar: false });
}

// ---- effects of weather and holidays

const _change = (ratio) => change(ratio - 1);

/** The effect of a column in a sentence: its strongest value against the usual one. */
function _effectText(effect) {
  const value = (v) => Number(v.toPrecision(2)).toLocaleString("en").replace("-", "−");
  const range = (k) => `${_change(effect.mean[k])} riders (90%: ${_change(effect.q05[k])} to ${_change(effect.q95[k])})`;
  if (effect.name === "holiday") return `A public holiday has ${range(0)} compared with a Wednesday.`;
  const last = effect.values.length - 1;
  const ends = effect.usual <= effect.values[0] ? [last] : [0, last];
  return capital(ends.map((k) => `${columnName(effect.name)} ${value(effect.values[k])}${columnUnit(effect.name)} instead of ${value(effect.usual)}${columnUnit(effect.name)}: ${range(k)}`).join("; ")) + ".";
}

function buildEffects() {
  const others = data.wet_days.filter(({ name }) => !data.effects.some((effect) => effect.name === name));
  const lost = (name) => data.wet_days.filter((own) => own.name === name).map((own) => element("p", { class: "lost-when" }, own.sentence));
  for (const { name } of others) byId("effects-body").append(element("section", {}, element("h3", {}, capital(columnName(name))), ...lost(name)));
  for (const effect of data.effects) {
    const chart = element("div", { class: "chart effect", role: "img", "aria-label": `Demand by ${columnName(effect.name)}: ${_effectText(effect)}` });
    byId("effects-body").append(element("section", {}, element("h3", {}, effect.name === "holiday" ? "Public holidays" : capital(columnName(effect.name))), element("p", { class: "note" }, _effectText(effect)), ...lost(effect.name), ...(effect.values.length > 1 ? [chart] : [])));
  }
}

async function drawEffects() {
  const always = anyChoice() && data.effects.length ? " They are learnt for all zones, days and hours together, so they are the same for every choice above." : "";
  const learnt = data.effects.length ? "Change of the whole city's demand against usual weather, as the model has learnt it, with all else equal. Bands are 90% intervals." : Object.keys(data.columns).length ? "This model learns no effect of weather on demand." : "Not known: the run has no weather. Give --weather to see what rain and heat do.";
  const compared = data.wet_days.length ? " Days with and without rain or snow are compared as they were; they differ in more than that." : "";
  byId("effects-lead").textContent = `${learnt}${compared}${always}`;
  const charts = [...document.querySelectorAll("#effects-body .effect")];
  const curves = data.effects.filter((effect) => effect.values.length > 1);
  await Promise.all(curves.map((effect, k) => {
    const demand = colour("demand");
    const percentOff = (ratio) => 100 * (ratio - 1);
    const line = (y, more) => ({ type: "scatter", mode: "lines", x: effect.values, y: y.map(percentOff), hoverinfo: "skip", ...more });
    const facts = effect.values.map((v, i) => [`${plain(columnName(effect.name), 40)} ${Number(v.toPrecision(3))}${columnUnit(effect.name)}: ${_change(effect.mean[i])} (${_change(effect.q05[i])} to ${_change(effect.q95[i])})`]);
    const traces = [
      bandTrace(effect.values, effect.q05.map(percentOff), effect.q95.map(percentOff), withAlpha(demand, 0.22)),
      line(effect.mean, { line: { color: demand, width: 2 }, hoverinfo: undefined, customdata: facts, hovertemplate: "%{customdata[0]}<extra></extra>" }),
    ];
    const layout = {
      ...baseLayout(), showlegend: false, dragmode: false, hovermode: "closest", margin: { l: 50, r: 8, t: 6, b: 34 },
      xaxis: { ...axis(), fixedrange: true, showgrid: false, zeroline: false, title: axisTitle(plain(columnText(effect.name), 60)) },
      yaxis: { ...axis(), title: axisTitle("change of riders"), fixedrange: true, zeroline: true, zerolinecolor: colour("muted"), ticksuffix: "%", nticks: 5 },
    };
    return Plotly.react(charts[k], traces, layout, { responsive: true, displayModeBar: false });
  }));
}
