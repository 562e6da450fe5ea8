// The page: headline, what is chosen, and light, dark, width and print.

function _period_text() {
  const day = (text) => new Date(`${text.slice(0, 10)}T00:00Z`);
  const last = new Date(Date.parse(`${data.period.end.replace(" ", "T")}Z`) - 1); // the end is not in the period
  const show = (date) => date.toLocaleDateString("en-GB", { day: "numeric", month: "short", year: "numeric", timeZone: "UTC" });
  return `${show(day(data.period.start))} – ${show(last)}`;
}

function buildHeadline() {
  byId("period").textContent = [
    _period_text(), data.period.timezone, `bins of one ${data.period.bin}`.replace("one 1", "1").replace(/one (\d)/, "$1"), "90% intervals",
  ].filter(Boolean).join(" · ");
  byId("made").textContent = `Made by ${data.made.by} on ${data.made.on}. To get the tables behind this page, run: unmet export.`;
}

function drawHeadline() {
  const { observed, lost, lost_share: share, stockout_share: out, walked_on: walked } = headlineOfChoice();
  const strong = (text) => element("strong", {}, text);
  byId("sentence").replaceChildren(
    anyChoice() ? `${capital(choiceWords())}, riders took ` : "Riders took ", strong(number(observed.mean)), ` trips in ${counted(daysOfChoice(), "day")}. `,
    ...(lost.mean > 0
      ? ["Another ", element("strong", { class: "lost" }, number(Math.round(lost.mean))), ` (${interval(Math.round(lost.q05), Math.round(lost.q95))}) were lost because there was nothing to rent: `, strong(percent(share)), " of demand.", ...(walked && walked.mean >= 0.5 ? [` ${counted(Math.round(walked.mean), "rider")} (${interval(Math.round(walked.q05), Math.round(walked.q95))}) who found nothing walked on and ${Math.round(walked.mean) === 1 ? "was" : "were"} served nearby.`] : [])]
      : [out === null
          ? "Lost trips cannot be estimated, because the times with something to rent are unknown."
          : "According to this model, no trip was lost."]),
    ...(!anyChoice() && data.headline.no_dock >= 0.5 ? [` About ${number(Math.round(data.headline.no_dock))} found no free dock at the station they rode to.`] : [])
  );
}

function drawCards(choose) {
  byId("cards").replaceChildren(..._cards(choose));
}

function _cards(choose) {
  const { observed, demand, lost, lost_share: share, stockout_share: out, stockout_hours: hours, zones: counts, true_demand: truth } = headlineOfChoice();
  const card = (name, value, note, more = {}) =>
    element("div", { class: `card figure ${more.class || ""}` }, element("h2", {}, name), element("p", { class: value.length > 9 ? "value longest" : value.length > 7 ? "value long" : "value" }, value), ...note);
  const note = (text) => element("p", { class: "note" }, text);
  const bar = element("div", { class: "stack", "aria-hidden": "true" });
  bar.append(element("i", { style: `flex:${1 - (share || 0)};background:var(--demand)` }), element("i", { style: `flex:${share || 0};background:var(--lost)` }));
  return [
    card("Observed trips", number(observed.mean), [note(`in ${counted(daysOfChoice(), "day")}`), note(counted(counts.chosen ?? zones.zone.filter((_, i) => !failed(i) && !leftOut(i)).length, "zone"))]),
    card("Demand", number(Math.round(demand.mean)), [note(`90%: ${interval(Math.round(demand.q05), Math.round(demand.q95))}`), ...(known(truth) ? [element("p", { class: "note truth" }, `true demand: ${number(truth)}`)] : [])]),
    card("Lost trips", out === null ? "unknown" : number(Math.round(lost.mean)), [note(`90%: ${interval(Math.round(lost.q05), Math.round(lost.q95))}`), note(`${percent(share)} of demand`), bar], { class: "lost" }),
    card("Out of stock", percent(out), [note("of the open time"), note(`${number(Math.round(hours))} zone-hours`)]),
    _worstCard(choose),
    ..._timesCard(),
    _qualityCard(),
  ];
}

function _worstCard(choose) {
  const order = zones.zone.map((_, i) => i).filter((i) => zones.lost_mean[i] > 0 && inArea(i));
  order.sort((a, b) => zones.lost_mean[b] - zones.lost_mean[a]);
  const list = element("ol", { class: "worst" });
  for (const i of order.slice(0, 3)) {
    const button = element("button", { type: "button", title: zones.name[i] }, element("bdi", {}, zones.name[i]), element("span", {}, number(zones.lost_mean[i])));
    button.addEventListener("click", () => choose(i));
    list.append(element("li", {}, button));
  }
  const none = element("p", { class: "note" }, "no zone lost trips");
  return element("div", { class: "card figure" }, element("h2", {}, "Zones with most lost trips"), order.length ? list : none);
}

/** Kinds of days and parts of the day within the choice, those with most lost trips first. */
function _timesCard() {
  const within = ({ choice: [area, days, part] }) => area === chosen.area && days !== null && part !== null && (chosen.days === null || days === chosen.days) && (chosen.part === null || part === chosen.part);
  const order = data.story.choices.filter((own) => within(own) && own.totals.lost.mean > 0).sort((a, b) => b.totals.lost.mean - a.totals.lost.mean);
  if (!order.length) return [];
  const list = element("ol", { class: "worst times" });
  for (const { choice: [, days, part], totals: { lost } } of order.slice(0, 3)) {
    const text = `${capital(days)}, ${partText(part)}`;
    const button = element("button", { type: "button", title: `${text}: ${number(Math.round(lost.mean))} lost (90%: ${interval(Math.round(lost.q05), Math.round(lost.q95))})` }, element("bdi", {}, text), element("span", {}, number(Math.round(lost.mean))));
    button.addEventListener("click", async () => {
      await setChoice({ days, part });
      byId("cards").querySelector(".times button").focus(); // the cards are new
    });
    list.append(element("li", {}, button));
  }
  return [element("div", { class: "card figure" }, element("h2", {}, "Times with most lost trips"), list)];
}

function _qualityCard() {
  const some = zones.zone.map((_, i) => i).filter(inArea);
  const hours = (state) => some.reduce((sum, i) => sum + ((_everyZone[`${state}_hours`] || zones[`${state}_hours`])[i] || 0), 0);
  const total = ["available", "stockout", "closed", "unknown"].reduce((sum, state) => sum + hours(state), 0);
  const [bad, loose, out] = [failed, (i) => zones.converged[i] === false, leftOut].map((is) => some.filter(is).length);
  const rejected = data.how.quality.filter((row) => row[0] === "rejected").sort((a, b) => b[4] - a[4])[0];
  const line = (good, text) => element("li", { class: good ? "good" : "care" }, text);
  const lines = element("ul", { class: "checks" });
  if (total > 0) lines.append(line(hours("unknown") / total < 0.05, `${percent(1 - hours("unknown") / total)} of the time known`));
  lines.append(line(!rejected || rejected[4] < 0.02, rejected ? `${percent(rejected[4])} of ${rejected[1]} rejected: ${rejected[2]}` : "no rows rejected"));
  lines.append(line(!bad && !loose,
    bad ? `${bad} of ${counted(some.length, "zone")} not estimated` : loose ? `${counted(loose, "fit")} did not converge` : some.length === 1 ? "the zone was estimated" : `all ${some.length} zones estimated`));
  if (out) lines.append(line(false, `${counted(out, "zone")} left out: records or estimates not plausible`));
  const all = chosen.days !== null || chosen.part !== null ? [element("p", { class: "note" }, "all days and hours")] : [];
  return element("div", { class: "card figure" }, element("h2", {}, "Data quality"), lines, ...all);
}

function _zoneFacts(i) {
  byId("zone-title").replaceChildren(element("bdi", { title: zoneName(i) }, zoneName(i)));
  byId("all-zones").hidden = i === EVERY;
  const pair = (name, value) => element("span", {}, `${name} `, element("b", {}, value));
  const { observed, demand, lost, stockout_share: out } = headlineOfChoice();
  const facts = i === EVERY
    ? [pair("observed", number(observed.mean)), pair("demand", number(Math.round(demand.mean))), pair("lost", `${number(Math.round(lost.mean))} (${interval(Math.round(lost.q05), Math.round(lost.q95))})`), pair("out of stock", percent(out))]
    : [pair("observed", number(zones.observed[i])), pair("demand", number(zones.demand_mean[i])), pair("lost", failed(i) ? "–" : `${number(zones.lost_mean[i])} (${interval(zones.lost_q05[i], zones.lost_q95[i])})`), pair("out of stock", percent(zones.stockout_share[i]))];
  if (i !== EVERY && known(zones.capacity[i])) facts.push(pair("capacity", number(zones.capacity[i])));
  if (i !== EVERY && zones.name[i] !== zones.zone[i]) facts.push(element("span", { class: "muted id", title: zones.zone[i] }, element("bdi", {}, zones.zone[i])));
  byId("zone-facts").replaceChildren(...facts);
  const notes = [];
  if (failed(i)) notes.push(`Could not be estimated: ${whyFailed(i)}`);
  else if (i !== EVERY) {
    if (leftOut(i)) notes.push(`Left out of all totals: ${zones.left_out[i]}.`);
    if (zones.converged[i] === false) notes.push("The fit did not converge: this estimate is less reliable.");
    if (zones.extrapolated_bins[i]) notes.push(`${counted(zones.extrapolated_bins[i], "bin")} in hours of the week that never had supply: extrapolated.`);
  }
  byId("zone-note").textContent = notes.join(" ");
  byId("zone-note").hidden = !notes.length;
}

/** What was chosen far from where it is shown (on a phone, or from the list of where to act) comes into sight. */
function _reveal(section) {
  const top = section.getBoundingClientRect().top;
  if (top >= -40 && top < 0.7 * innerHeight) return;
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  section.scrollIntoView({ behavior: still ? "auto" : "smooth", block: "start" });
}

async function redraw() {
  await Promise.all([drawSeries(), drawWeek()]);
}

async function start() {
  await readClock();
  const tables = [];
  const choose = async (i, drawn = false) => {
    shown.zone = i;
    _zoneFacts(i);
    markChosen(i);
    tables.forEach((table) => table.mark(i));
    if (i !== EVERY) _reveal(byId("zone"));
    if (!drawn) await redraw();
    keepInAddress();
    document.body.dataset.zone = i;
  };
  buildHeadline();
  buildChecks();
  buildWords();
  buildPlan();
  buildMap(choose);
  const zoneTable = buildZoneTable(choose);
  tables.push(zoneTable);
  buildSeries();
  buildStory();
  buildAreas();
  tables.push(buildAct(choose));
  buildForecast();
  buildEffects();
  buildHow();
  const choiceChanged = async () => {
    drawHeadline();
    drawCards(choose);
    drawMap();
    zoneTable.rebuild(inArea);
    _zoneFacts(shown.zone);
    markChosen(shown.zone);
    zoneTable.mark(shown.zone);
    drawAreas();
    await Promise.all([redraw(), drawStory(), drawPlan(), drawAct(), drawForecast(), drawEffects()]);
    keepInAddress();
    document.body.dataset.choice = [chosen.area, chosen.days, chosen.part].map((v) => v || "").join("|");
  };
  buildChoice(choiceChanged);
  const state = stateInAddress();
  Object.assign(chosen, state.choice);
  if (state.window) setWindow(...state.window);
  shown.zone = state.zone;
  await applyChoice(choiceChanged);
  byId("all-zones").addEventListener("click", async () => {
    await choose(EVERY);
    byId("zone-title").focus(); // the button is gone
  });
  await choose(state.zone, true);
  listenToSeries();
  listenToAct(choose);

  const everything = async () => {
    drawMap();
    markChosen(shown.zone);
    await redraw();
    await Promise.all([drawStory(), drawForecast(), drawEffects()]);
    await drawPlan();
    await drawAct();
  };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", everything);
  let width = innerWidth;
  let waiting;
  addEventListener("resize", () => {
    if (innerWidth === width || document.documentElement.classList.contains("printing")) return;
    width = innerWidth;
    clearTimeout(waiting);
    waiting = setTimeout(everything, 150);
  });
  // Paper is light, whatever the screen.
  addEventListener("beforeprint", () => {
    document.documentElement.classList.add("printing");
    for (const details of document.querySelectorAll("#how details")) details.open = true;
    everything();
    for (const chart of document.querySelectorAll(".chart")) if (chart.data) Plotly.relayout(chart, { width: chart.clientWidth, height: chart.clientHeight });
  });
  addEventListener("afterprint", () => {
    document.documentElement.classList.remove("printing");
    everything();
  });
  addDownloads();
  addEventListener("hashchange", async () => {
    const next = stateInAddress();
    Object.assign(chosen, next.choice);
    if (next.window) setWindow(...next.window);
    await applyChoice(choiceChanged);
    if (next.zone !== shown.zone) await choose(next.zone);
  });
  document.body.dataset.ready = "yes";
}

/** Hold back the page's load event, which whoever prints it unattended waits for: a frame that is still being written. */
function holdLoad() {
  const frame = element("iframe", { hidden: "", title: "" });
  document.body.append(frame);
  frame.contentDocument.open();
  return () => {
    frame.contentDocument.close();
    frame.remove();
  };
}

start().finally(holdLoad());
