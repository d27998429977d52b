// What is known of one object? What `dragoman explain` says of it, with links to what it names and to what-if.

import { get } from "./api.js";
import { h } from "./dom.js";
import { link } from "./fleet.js";
import { t } from "./texts.js";
import { nodeCard } from "./tiles.js";
import { ask } from "./waiting.js";

export async function detail(kind, namespace, name, context, close) {
  const full = [namespace, name].filter(Boolean).join("/");
  const panel = h(
    "aside",
    { "aria-labelledby": "detail-title" },
    h("header", {}, h("h2", { id: "detail-title", tabindex: "-1" }, `${t("kind." + kind)} ${full}`), h("button", { type: "button", on: { click: close } }, t("close"))),
  );
  try {
    const answer = await get("object", { kind, namespace, name });
    const device = answer.body.devices?.[0];
    if (device?.holders?.length) {
      panel.append(
        h("h3", {}, t("detail.holders")),
        h(
          "ul",
          {},
          device.holders.map((holder) =>
            h(
              "li",
              {},
              link(`${holder.namespace}/${holder.claim}`, () => context.open("claim", holder.claim, holder.namespace)),
              holder.pods.map((pod) => [" · ", link(pod, () => context.open("pod", pod, holder.namespace))]),
            ),
          ),
        ),
      );
    }
    if (answer.node) panel.append(nodeCard(answer.node, context.open));
    const target = h("div", {});
    panel.append(h("pre", { class: "lines", tabindex: "0" }, answer.lines.join("\n")));
    const questions = choices(kind, full, answer);
    if (questions.length) {
      panel.append(
        h("h3", {}, t("whatif.title")),
        h("div", { class: "row" }, questions.map(([text, asked]) => h("button", { type: "button", on: { click: () => ask(target, asked, context) } }, text))),
        target,
      );
    }
  } catch (error) {
    panel.append(h("p", { class: "error", role: "alert" }, error.message));
  }
  return panel;
}

function choices(kind, full, answer) {
  if (kind === "node") return [[t("whatif.add-node"), { addNode: full }], [t("whatif.remove-node"), { removeNode: full }]];
  if (kind === "device") return [[t("whatif.taint"), { taint: { device: full, key: "dragoman.dev/what-if", effect: "NoExecute" } }]];
  if (kind === "pod") {
    const hints = answer.hints.map((hint) => {
      const pod = answer.body.pods[0];
      return [hint.message, { hint: { namespace: pod.namespace, name: pod.name, index: hint.index } }];
    });
    return [...hints, [t("whatif.remove-pod"), { removePod: full }]];
  }
  return [];
}
