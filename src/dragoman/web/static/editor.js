// Would this fit? A manifest judged and simulated as it is typed; where the page has actions, also applied.

import { post } from "./api.js";
import { h, later, replace } from "./dom.js";
import { t } from "./texts.js";
import { beforeAfter } from "./tiles.js";

let text = "";
let asked = 0;

export async function show(main, query, context, quietly) {
  if (main.querySelector(".editor")) return;
  const results = h("div", { "aria-live": "polite" }, h("p", { class: "quiet" }, t("editor.empty")));
  const judge = async () => {
    const mine = ++asked;
    if (!text.trim()) {
      replace(results, h("p", { class: "quiet" }, t("editor.empty")));
      return;
    }
    try {
      const answer = await post("editor", { text });
      if (mine === asked) replace(results, judged(answer, area, context));
    } catch (error) {
      if (mine === asked) replace(results, h("p", { class: "error", role: "alert" }, error.message));
    }
  };
  const soon = later(judge, 300);
  const area = h("textarea", { id: "manifest", spellcheck: "false", value: text, on: { input: (event) => { text = event.target.value; soon(); } } });
  const actions = context.state().actions;
  replace(
    main,
    h("h1", {}, t("editor.title")),
    h("p", { class: "quiet" }, t(actions ? "editor.lead-actions" : "editor.lead")),
    h("div", { class: "editor" }, h("div", {}, h("label", { for: "manifest" }, t("editor.manifest")), area, actions ? apply(() => text) : null), results),
    actions ? others(actions, context) : null,
  );
  if (text) await judge();
}

function judged(answer, area, context) {
  const findings = answer.findings.map((finding) =>
    h(
      "div",
      { class: `finding ${finding.severity}-level` },
      h(
        "p",
        {},
        h("button", { type: "button", class: "link", on: { click: () => jump(area, finding.line) } }, t("editor.line", { n: finding.line })),
        ` ${t("severity." + finding.severity)} ${finding.code}`,
        finding.field ? h("span", { class: "quiet" }, ` ${finding.field}`) : "",
      ),
      h("p", {}, finding.message),
      finding.fix ? h("p", { class: "quiet" }, t("editor.fix", { fix: finding.fix })) : null,
    ),
  );
  const refused = answer.refused.map((one) => h("div", { class: "finding error-level" }, h("p", {}, t("editor.refused", { object: one.object })), h("p", {}, one.message)));
  const pods = answer.pods.map((pod) =>
    h(
      "section",
      { class: "cause" },
      h("h3", {}, `${pod.pod} → ${pod.node || t(pod.undecided ? "editor.undecided" : "editor.nowhere")}`),
      pod.devices.length ? h("div", { class: "facts" }, pod.devices.map((line) => h("p", {}, line))) : null,
      pod.why ? h("pre", { class: "lines", tabindex: "0" }, pod.why.join("\n")) : null,
    ),
  );
  return [
    h("h2", {}, t("editor.findings", { n: findings.length })),
    findings.length || refused.length ? [findings, refused] : h("p", {}, t("editor.fine")),
    answer.pods.length ? [h("h2", {}, t("editor.placement")), pods] : null,
    answer.fleet && answer.fleet.nodes.length ? beforeAfter(answer.fleet, context.open) : null,
  ];
}

function jump(area, line) {
  const lines = area.value.split("\n");
  const start = lines.slice(0, Math.max(line - 1, 0)).join("\n").length + (line > 1 ? 1 : 0);
  area.focus();
  area.setSelectionRange(start, start + (lines[line - 1] || "").length);
}

function acting(target, name, body) {
  return async () => {
    replace(target, h("p", { role: "status" }, t("loading")));
    try {
      const answer = await post(`actions/${name}`, body());
      replace(target, h("pre", { class: "lines", role: "status" }, answer.lines.join("\n")));
    } catch (error) {
      replace(target, h("p", { class: "error", role: "alert" }, error.message));
    }
  };
}

function apply(current) {
  const target = h("div", {});
  return h("div", {}, h("button", { type: "button", on: { click: acting(target, "apply", () => ({ text: current() })) } }, t("action.apply")), target);
}

function others(actions, context) {
  const gone = { kind: h("select", {}, actions.kinds.map((kind) => h("option", { value: kind }, kind))), name: h("input", { required: true }), namespace: h("input", { value: "default" }) };
  const removed = h("div", {});
  const kind = h("select", {}, actions.faults.map((fault) => h("option", { value: fault.name }, fault.name)));
  const node = h("input", { list: "fault-nodes", required: true });
  const fields = h("span", { class: "row" });
  const broken = h("div", {});
  const inputs = () => {
    const fault = actions.faults.find((one) => one.name === kind.value);
    replace(fields, h("span", { class: "quiet" }, fault.summary), fault.fields.map((field) => h("label", { title: field.help }, field.name, h("input", { name: field.name, placeholder: field.placeholder }))));
  };
  kind.addEventListener("change", inputs);
  inputs();
  const data = () => ({ data: { fault: kind.value, node: node.value, ...Object.fromEntries([...fields.querySelectorAll("input")].map((input) => [input.name, input.value])) } });
  const advance = h("input", { value: "5m" });
  const speed = h("input", { value: "1" });
  const turned = h("div", {});
  const listed = h("div", {});
  const list = async () => {
    const answer = await post("actions/faults", {});
    replace(
      listed,
      answer.faults.length
        ? h("ul", {}, answer.faults.map((fault) => {
            const target = h("span", {});
            return h("li", {}, `${fault.name} (${fault.state}) ${fault.message} `, h("button", { type: "button", on: { click: async () => { await acting(target, "recover", () => ({ name: fault.name }))(); await list(); } } }, t("action.recover")), target);
          }))
        : h("p", { class: "quiet" }, t("action.no-faults")),
    );
  };
  list().catch((error) => replace(listed, h("p", { class: "error" }, error.message)));
  const form = (title, work, ...parts) => h("form", { on: { submit: (event) => { event.preventDefault(); work(); } } }, h("fieldset", {}, h("legend", {}, title), ...parts));
  const breakIt = acting(broken, "fault", data);
  return h(
    "section",
    { class: "groups", "aria-label": t("action.title") },
    h("h2", {}, t("action.title")),
    form(t("action.delete"), acting(removed, "delete", () => ({ kind: gone.kind.value, name: gone.name.value, namespace: gone.namespace.value })), h("label", {}, t("action.kind"), gone.kind), h("label", {}, t("action.name"), gone.name), h("label", {}, t("action.namespace"), gone.namespace), h("button", { type: "submit" }, t("action.delete")), removed),
    form(t("action.fault"), async () => { await breakIt(); await list(); }, h("label", {}, t("action.fault"), kind), h("label", {}, t("action.node"), node), h("datalist", { id: "fault-nodes" }, (context.state().nodes || []).map((name) => h("option", { value: name }))), fields, h("button", { type: "submit" }, t("action.break")), broken, listed),
    form(t("action.clock"), acting(turned, "clock", () => ({ advance: advance.value })), h("label", {}, t("action.advance"), advance), h("button", { type: "submit" }, t("action.advance")), h("label", {}, t("action.speed"), speed), h("button", { type: "button", on: { click: () => acting(turned, "clock", () => ({ speed: speed.value }))() } }, t("action.speed")), turned),
  );
}
