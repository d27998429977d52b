// What has changed? Events and the times of objects, newest first; how long claims took; what looks like an alert.

import { get } from "./api.js";
import { h, later, replace } from "./dom.js";
import { link } from "./fleet.js";
import { language, number, t } from "./texts.js";

const SPANS = [["3600", "time.hour"], ["86400", "time.day"], ["0", "time.all"]];
const OPENS = { Pod: "pod", ResourceClaim: "claim", Node: "node", Device: "device" };

export async function show(main, query, context, quietly) {
  if (!main.querySelector(".time-view")) replace(main, h("h1", {}, t("time.title")), h("div", { class: "time-view" }, h("p", { class: "loading" }, t("loading"))));
  const since = query.since ?? "3600";
  const [answer, broken] = await Promise.all([get("time", { since, text: query.text || "" }), get("problems")]);
  const typed = later((value) => context.go({ text: value }), 250);
  const old = main.querySelector("form");
  const form = old?.contains(document.activeElement)
    ? old
    : h(
        "form",
        { class: "filters", on: { submit: (event) => event.preventDefault() } },
        h("label", {}, t("time.span"), h("select", { name: "since", on: { change: (event) => context.go({ since: event.target.value }) } }, SPANS.map(([value, key]) => h("option", { value, selected: value === since }, t(key))))),
        h("label", {}, t("time.search"), h("input", { name: "text", value: query.text || "", autocomplete: "off", on: { input: (event) => typed(event.target.value) } })),
      );
  const latency = answer.latency;
  const seconds = (value) => t("seconds", { n: new Intl.NumberFormat(language, { maximumFractionDigits: 1 }).format(value) });
  const body = h(
    "div",
    { class: "time-view" },
    h(
      "dl",
      { class: "numbers" },
      h("div", {}, h("dt", {}, t("time.claims")), h("dd", {}, number(latency.claims))),
      latency.claims ? ["p50", "p90", "p99", "max"].map((name) => h("div", {}, h("dt", {}, t("time.latency", { part: name })), h("dd", {}, seconds(latency[name])))) : null,
      h("div", {}, h("dt", {}, t("time.problems")), h("dd", {}, h("a", { href: "#fleet?tab=problems" }, number(broken.total)))),
    ),
    answer.total
      ? h(
          "table",
          { class: "time" },
          h("thead", {}, h("tr", {}, ["when", "what", "object", "text"].map((name) => h("th", { scope: "col" }, t(`time.${name}`))))),
          h("tbody", {}, answer.entries.map((entry) => row(entry, context))),
        )
      : h("p", {}, t("time.none")),
    answer.total > answer.entries.length ? h("p", { class: "quiet" }, t("rows.more", { n: number(answer.total - answer.entries.length) })) : null,
  );
  if (form === old) main.querySelector(".time-view").replaceWith(body);
  else replace(main, h("h1", {}, t("time.title")), form, body);
}

function row(entry, context) {
  const kind = OPENS[entry.object];
  const when = new Date(entry.when);
  const shown = isNaN(when) ? entry.when : new Intl.DateTimeFormat(language, { dateStyle: "short", timeStyle: "medium" }).format(when);
  return h(
    "tr",
    {},
    h("td", {}, h("time", { datetime: entry.when }, shown)),
    h("td", { class: entry.warning ? "warn" : "" }, entry.warning ? "⚠ " : "", t(`happened.${entry.kind}`), entry.count > 1 ? ` ×${entry.count}` : ""),
    h("td", {}, kind ? link(`${entry.object} ${entry.name}`, () => context.open(kind, entry.name)) : `${entry.object} ${entry.name}`),
    h("td", {}, entry.text),
  );
}
