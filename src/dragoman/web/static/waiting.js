// What waits, and what would help? Causes with the pods that share them; every hint and change can be tried.

import { get, post } from "./api.js";
import { h, replace } from "./dom.js";
import { link } from "./fleet.js";
import { number, t } from "./texts.js";
import { beforeAfter } from "./tiles.js";

const NAMES = 12;

export async function show(main, query, context, quietly) {
  if (!quietly || !main.firstChild) replace(main, h("h1", {}, t("waiting.title")), h("p", { class: "loading" }, t("loading")));
  const answer = await get("waiting");
  const text = (query.text || "").toLowerCase();
  const groups = answer.groups.filter(
    (group) => !text || group.objects.some((object) => `${object.namespace}/${object.name}`.toLowerCase().includes(text)),
  );
  const search = h("input", { value: query.text || "", name: "text", autocomplete: "off" });
  replace(
    main,
    h("h1", {}, t("waiting.title")),
    h(
      "form",
      { class: "filters", on: { submit: (event) => { event.preventDefault(); context.go({ text: search.value }); } } },
      h("label", {}, t("waiting.search"), search),
      h("button", { type: "submit" }, t("search")),
    ),
    groups.length ? groups.map((group) => cause(group, context)) : h("p", {}, t("waiting.none")),
    answer.fitsTotal
      ? h(
          "section",
          { class: "cause" },
          h("h2", {}, t("waiting.fits"), " ", h("span", { class: "quiet" }, number(answer.fitsTotal))),
          h("ul", {}, answer.fits.slice(0, 40).map((pod) => h("li", {}, link(`${pod.namespace}/${pod.name}`, () => context.open("pod", pod.name, pod.namespace)), ` → ${pod.node}`))),
        )
      : null,
    other(context),
  );
}

function cause(group, context) {
  const target = h("div", {});
  const first = group.objects[0];
  const rest = group.count - NAMES;
  const parts = [
    h("h2", {}, heading(group)),
    h("ul", {}, group.objects.slice(0, NAMES).map((object) => h("li", {}, link(`${object.namespace}/${object.name}`, () => context.open(object.kind, object.name, object.namespace)))), rest > 0 ? h("li", { class: "quiet" }, t("more", { n: number(rest) })) : null),
    h("div", { class: "facts" }, group.why.map((line) => h("p", {}, line))),
  ];
  if (group.hint) {
    const [namespace, name] = group.hint.for.replace(/^\w+ /, "").split("/");
    parts.push(
      h(
        "div",
        { class: "hint" },
        h("p", {}, h("strong", {}, t("waiting.hint")), " ", group.hint.text),
        h(
          "div",
          { class: "row" },
          h("button", { type: "button", on: { click: () => ask(target, { hint: { namespace, name, index: 0 } }, context) } }, t("waiting.try")),
          h("button", { type: "button", on: { click: () => context.open(first.kind, name, namespace) } }, t("waiting.all")),
        ),
      ),
    );
  }
  return h("section", { class: "cause" }, parts, target);
}

function heading(group) {
  const pods = group.objects.every((object) => object.kind === "pod");
  if (group.count === 1) return t(pods ? "waiting.pod" : "waiting.object");
  return t(pods ? "waiting.pods" : "waiting.objects", { n: number(group.count) });
}

function other(context) {
  const target = h("div", {});
  const choice = h("select", { name: "change" }, ["addNode", "removeNode", "removePod", "taint"].map((name) => h("option", { value: name }, t(`change.${name}`))));
  const name = h("input", { name: "name", autocomplete: "off", spellcheck: "false", required: true, list: "node-names" });
  const key = h("input", { name: "key", value: "dragoman.dev/what-if" });
  const effect = h("select", { name: "effect" }, ["NoSchedule", "NoExecute"].map((each) => h("option", { value: each }, each)));
  const more = h("span", { class: "row", hidden: true }, h("label", {}, t("change.key"), key), h("label", {}, t("change.effect"), effect));
  choice.addEventListener("change", () => (more.hidden = choice.value !== "taint"));
  return h(
    "section",
    { class: "cause" },
    h("h2", {}, t("whatif.title")),
    h(
      "form",
      {
        class: "row",
        on: {
          submit: (event) => {
            event.preventDefault();
            const value = name.value.trim();
            ask(target, choice.value === "taint" ? { taint: { device: value, key: key.value.trim(), effect: effect.value } } : { [choice.value]: value }, context);
          },
        },
      },
      h("label", {}, t("change.what"), choice),
      h("label", {}, t("change.name"), name),
      more,
      h("button", { type: "submit" }, t("waiting.try")),
      h("datalist", { id: "node-names" }, (context.state().nodes || []).slice(0, 200).map((node) => h("option", { value: node }))),
    ),
    target,
  );
}

export async function ask(target, asked, context) {
  replace(target, h("p", { class: "loading", role: "status" }, t("loading")));
  try {
    replace(target, outcome(await post("whatif", asked), context, () => replace(target)));
    target.querySelector("h3")?.focus();
  } catch (error) {
    replace(target, h("p", { class: "error", role: "alert" }, error.message));
  }
}

function outcome(answer, context, close) {
  const list = (title, entries) => (entries.length ? [h("p", {}, h("strong", {}, title)), h("ul", {}, entries.slice(0, 20).map((entry) => h("li", {}, entry))), entries.length > 20 ? h("p", { class: "quiet" }, t("more", { n: entries.length - 20 })) : null] : []);
  return h(
    "section",
    { class: "whatif" },
    h("h3", { tabindex: "-1" }, t("whatif.if", { what: answer.what })),
    h("p", {}, t("whatif.counts", { before: number(answer.waiting.before), after: number(answer.waiting.after) })),
    list(t("whatif.gained"), answer.gained.map((pod) => `${pod.pod} → ${pod.node}`)),
    list(t("whatif.lost"), answer.lost),
    list(t("whatif.displaced"), answer.displaced.map((entry) => `${entry.pod} (${entry.node}, ${entry.device})`)),
    list(t("whatif.recreated"), answer.recreated.map((entry) => `${entry.pod} → ${entry.node || t("whatif.nowhere")}`)),
    beforeAfter(answer.fleet, context.open),
    h("div", {}, h("button", { type: "button", on: { click: close } }, t("close"))),
  );
}
