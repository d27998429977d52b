// What stands where? Groups of nodes with their counts first, the nodes of a group when it is opened, page by page.

import { get, Refused } from "./api.js";
import { h, later, replace } from "./dom.js";
import { number, t } from "./texts.js";
import { bar, nodeCard, STATES, swatch } from "./tiles.js";

const FIELDS = ["class", "namespace", "node", "state", "expression"];
const PAGE = 60;
const SMALL = 120;
const GROUPS = 200;
const opened = new Set();
const closed = new Set();

export async function show(main, query, context, quietly) {
  const filter = Object.fromEntries(FIELDS.map((name) => [name, query[name] || ""]));
  if (!main.querySelector(".filters")) {
    replace(
      main,
      h("h1", {}, t("fleet.title")),
      h("form", { class: "filters", "aria-label": t("filter.label"), on: { submit: (e) => e.preventDefault() } }),
      h("div", { class: "wrong" }),
      h("div", { class: "legend", role: "group", "aria-label": t("legend.label") }),
      h("div", { class: "tabs", role: "tablist" }),
      h("div", { class: "content", id: "content", role: "tabpanel", "aria-labelledby": "tab-nodes" }, h("p", { class: "loading" }, t("loading"))),
    );
  }
  const wrong = main.querySelector(".wrong");
  let summary;
  try {
    summary = await get("fleet", { ...filter, by: query.by });
    replace(wrong);
    main.querySelector("#expression")?.removeAttribute("aria-invalid");
  } catch (error) {
    if (!(error instanceof Refused) || !filter.expression) throw error;
    const where = error.line && !error.message.includes("\n") ? t("filter.where", { line: error.line, column: error.column }) : "";
    replace(wrong, h("pre", { class: "error", role: "alert", id: "expression-error" }, [where, error.message].filter(Boolean).join(" ")));
    main.querySelector("#expression")?.setAttribute("aria-invalid", "true");
    return;
  }
  const form = main.querySelector(".filters");
  if (!form.contains(document.activeElement) || !form.firstChild) replace(form, fields(filter, summary, context));
  replace(main.querySelector(".legend"), legend(filter, summary, context));
  const tab = ["nodes", "holders", "problems"].includes(query.tab) ? query.tab : "nodes";
  replace(main.querySelector(".tabs"), tabs(tab, summary, context));
  const content = main.querySelector(".content");
  content.setAttribute("aria-labelledby", `tab-${tab}`);
  if (tab === "holders") await holders(content, filter, context);
  else if (tab === "problems") await problems(content, context);
  else await groups(content, filter, summary, context);
}

function fields(filter, summary, context) {
  const choice = (name, label, options) =>
    h(
      "label",
      {},
      label,
      h(
        "select",
        { name, on: { change: (event) => context.go({ [name]: event.target.value }) } },
        options.map(([value, text]) => h("option", { value, selected: value === (name === "by" ? summary.by : filter[name]) }, text)),
      ),
    );
  const typed = later((name, value) => context.go({ [name]: value }), 250);
  const classes = Object.entries(summary.classes).map(([name, count]) => [name, `${name} (${number(count)})`]);
  return [
    choice("class", t("filter.class"), [["", t("filter.any")], ...classes]),
    choice("namespace", t("filter.namespace"), [["", t("filter.any")], ...summary.namespaces.map((name) => [name, name])]),
    h("label", {}, t("filter.node"), h("input", { name: "node", value: filter.node, autocomplete: "off", spellcheck: "false", on: { input: (e) => typed("node", e.target.value) } })),
    h(
      "label",
      { class: "wide" },
      t("filter.expression"),
      h("input", {
        name: "expression",
        id: "expression",
        value: filter.expression,
        placeholder: 'device.attributes["gpu.nvidia.com"].productName.contains("H100")',
        autocomplete: "off",
        spellcheck: "false",
        "aria-describedby": "expression-error",
        on: { input: (event) => typed("expression", event.target.value) },
      }),
    ),
    choice("by", t("filter.by"), summary.terms.map((term) => [term, t(`by.${term}`)])),
    FIELDS.some((name) => filter[name])
      ? h("button", { type: "button", on: { click: () => context.go(Object.fromEntries(FIELDS.map((name) => [name, ""]))) } }, t("filter.clear"))
      : null,
  ];
}

function legend(filter, summary, context) {
  return STATES.filter((state) => summary.counts[state] || filter.state === state).map((state) =>
    h(
      "button",
      {
        type: "button",
        "aria-pressed": String(filter.state === state),
        title: t(`meaning.${state}`),
        on: { click: () => context.go({ state: filter.state === state ? "" : state }) },
      },
      swatch(state),
      t(`state.${state}`),
      h("b", {}, number(summary.counts[state] || 0)),
    ),
  );
}

function tabs(chosen, summary, context) {
  const names = ["nodes", "holders", "problems"];
  const buttons = names.map((name) =>
    h(
      "button",
      {
        type: "button",
        role: "tab",
        id: `tab-${name}`,
        "aria-selected": String(name === chosen),
        "aria-controls": "content",
        tabindex: name === chosen ? "0" : "-1",
        on: {
          click: () => context.go({ tab: name === "nodes" ? "" : name }),
          keydown: (event) => {
            const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
            if (!step) return;
            const other = document.getElementById(`tab-${names[(names.indexOf(name) + step + 3) % 3]}`);
            other.focus();
            other.click();
          },
        },
      },
      t(`tab.${name}`),
      name === "nodes" ? ` ${number(summary.nodes)}` : null,
      name === "problems" && summary.problems ? [" ", h("span", { class: "badge" }, number(summary.problems))] : null,
    ),
  );
  return buttons;
}

async function groups(content, filter, summary, context) {
  if (!summary.groups.length) {
    replace(content, h("p", {}, t("fleet.none")));
    return;
  }
  const small = summary.nodes <= SMALL || summary.groups.length === 1;
  const sections = await Promise.all(
    summary.groups.slice(0, GROUPS).map(async (group) => {
      const key = `${summary.by}|${group.name}`;
      const isOpen = small ? !closed.has(key) : opened.has(key);
      const nodes = h("div", { class: "nodes" });
      const section = h("section", { class: "group" });
      const toggle = h(
        "button",
        {
          type: "button",
          "aria-expanded": String(isOpen),
          on: {
            click: async () => {
              const nowOpen = toggle.getAttribute("aria-expanded") !== "true";
              (nowOpen ? opened : closed).add(key);
              (nowOpen ? closed : opened).delete(key);
              toggle.setAttribute("aria-expanded", String(nowOpen));
              toggle.firstChild.textContent = nowOpen ? "▾" : "▸";
              if (nowOpen) {
                section.append(nodes);
                await page(nodes, filter, summary.by, group, 0, context);
              } else nodes.remove();
            },
          },
        },
        h("span", { "aria-hidden": "true" }, isOpen ? "▾" : "▸"),
        h("span", { class: "long", title: group.name }, group.name || t(summary.by === "none" ? "group.all" : "group.none")),
        h("span", { class: "quiet" }, t("group.nodes", { n: number(group.nodes) })),
        bar(group.counts),
      );
      section.append(h("h2", {}, toggle));
      if (isOpen) {
        section.append(nodes);
        await page(nodes, filter, summary.by, group, 0, context);
      }
      return section;
    }),
  );
  const more = summary.groups.length - GROUPS;
  replace(content, h("div", { class: "groups" }, sections, more > 0 ? h("p", { class: "quiet" }, t("group.more", { n: number(more) })) : null));
}

async function page(nodes, filter, by, group, offset, context) {
  const answer = await get("nodes", { ...filter, by, group: group.name, offset, limit: PAGE });
  if (!offset) replace(nodes);
  nodes.append(...answer.nodes.map((node) => nodeCard(node, context.open)));
  const left = answer.total - offset - answer.nodes.length;
  if (left <= 0) return;
  const more = h("button", { type: "button" }, t("more", { n: number(left) }));
  more.addEventListener("click", async () => {
    more.remove();
    await page(nodes, filter, by, group, offset + PAGE, context);
  });
  nodes.append(more);
}

async function holders(content, filter, context) {
  const answer = await get("holders", filter);
  if (!answer.total) {
    replace(content, h("p", {}, t("holders.none")));
    return;
  }
  const spaces = Object.entries(answer.namespaces).slice(0, 12);
  replace(
    content,
    h("dl", { class: "numbers" }, spaces.map(([name, count]) => h("div", {}, h("dt", {}, name), h("dd", {}, t("holders.devices", { n: number(count) }))))),
    h(
      "table",
      {},
      h("thead", {}, h("tr", {}, ["claim", "pods", "devices", "nodes"].map((name) => h("th", { scope: "col", class: name === "devices" ? "number" : "" }, t(`holders.${name === "devices" ? "count" : name}`))))),
      h(
        "tbody",
        {},
        answer.holders.map((row) =>
          h(
            "tr",
            {},
            h("td", {}, link(`${row.namespace}/${row.claim}`, () => context.open("claim", row.claim, row.namespace))),
            h("td", {}, row.pods.slice(0, 5).map((pod, i) => [i ? ", " : "", link(pod, () => context.open("pod", pod, row.namespace))]), row.pods.length > 5 ? ` +${row.pods.length - 5}` : ""),
            h("td", { class: "number" }, number(row.count)),
            h("td", {}, row.nodes.map((node, i) => [i ? ", " : "", link(node, () => context.open("node", node))])),
          ),
        ),
      ),
    ),
    answer.total > answer.holders.length ? h("p", { class: "quiet" }, t("rows.more", { n: number(answer.total - answer.holders.length) })) : null,
  );
}

async function problems(content, context) {
  const answer = await get("problems");
  if (!answer.total) {
    replace(content, h("p", {}, t("problems.none")));
    return;
  }
  replace(
    content,
    h(
      "table",
      {},
      h("thead", {}, h("tr", {}, ["what", "name", "reason", "count"].map((name) => h("th", { scope: "col", class: name === "count" ? "number" : "" }, t(`problems.${name}`))))),
      h(
        "tbody",
        {},
        answer.problems.map((row) =>
          h(
            "tr",
            {},
            h("td", {}, t(`kind.${row.kind}`)),
            h("td", {}, row.kind === "pool" ? row.name : link(row.name, () => context.open(row.kind, row.name))),
            h("td", {}, [row.reason, row.detail].filter(Boolean).join(": ")),
            h("td", { class: "number" }, number(row.count)),
          ),
        ),
      ),
    ),
    answer.total > answer.problems.length ? h("p", { class: "quiet" }, t("rows.more", { n: number(answer.total - answer.problems.length) })) : null,
  );
}

export function link(text, work) {
  return h("button", { type: "button", class: "link", on: { click: work } }, text);
}
