// How is a node drawn? Its devices as tiles by NUMA node and PCIe root; a state is a colour, a pattern and a letter.

import { h } from "./dom.js";
import { t } from "./texts.js";

export const STATES = ["free", "held", "shared", "tainted", "blocked", "unavailable", "unusable", "gone"];
const LETTERS = { free: "", held: "H", shared: "S", tainted: "T", blocked: "B", unavailable: "U", unusable: "X", gone: "?" };

export function swatch(state) {
  return h("span", { class: `tile swatch ${state}`, "aria-hidden": "true" }, LETTERS[state]);
}

function labelOf(device) {
  const parts = [`${device.name}: ${t("state." + device.state)}`];
  if (device.tainted && device.state !== "tainted") parts.push(t("state.tainted"));
  if (device.claims) parts.push(t("tile.claims", { claims: device.claims.join(", ") }));
  if (device.numa) parts.push(`NUMA ${device.numa}`);
  if (device.root) parts.push(`PCIe ${device.root}`);
  return parts.join(", ");
}

function tile(device, open, changed) {
  const label = labelOf(device);
  const classes = ["tile", device.state, device.kind, device.tainted ? "also-tainted" : "", device.out ? "out" : ""];
  if (changed) classes.push("changed");
  return h(
    "button",
    {
      type: "button",
      class: classes.filter(Boolean).join(" "),
      title: label,
      "aria-label": label,
      tabindex: "-1",
      on: { click: () => open("device", device.id) },
    },
    LETTERS[device.state],
  );
}

function by(list, key) {
  const found = new Map();
  for (const entry of list) {
    const name = entry[key] || "";
    if (!found.has(name)) found.set(name, []);
    found.get(name).push(entry);
  }
  return [...found].sort(([a], [b]) => a.localeCompare(b, undefined, { numeric: true }));
}

// Of partitions that nobody uses only the number is shown: most exist only on paper.
function card(devices, open, differs) {
  const whole = devices.filter((device) => device.kind !== "partition");
  const parts = devices.filter((device) => device.kind === "partition");
  const used = parts.filter((device) => !["free", "blocked", "unavailable"].includes(device.state));
  const rest = parts.length - used.length;
  return h(
    "span",
    { class: "card" },
    whole.map((device) => tile(device, open, differs(device))),
    used.map((device) => tile(device, open, differs(device))),
    rest ? h("span", { class: "rest", title: t("tile.partitions", { n: rest }) }, `+${rest}`) : null,
  );
}

export function nodeCard(node, open, options = {}) {
  const differs = options.differs || (() => false);
  const regions = by(node.devices, "numa").map(([numa, inside]) =>
    h(
      "div",
      { class: numa ? "numa" : "region" },
      numa ? h("span", { class: "mark" }, `NUMA ${numa}`) : null,
      by(inside, "root").map(([root, close]) =>
        h(
          "span",
          { class: root ? "root" : "region", title: root ? `PCIe ${root}` : undefined },
          by(close, "parent").map(([parent, devices]) =>
            parent ? card(devices, open, differs) : devices.map((device) => card([device], open, differs)),
          ),
        ),
      ),
    ),
  );
  const free = node.counts.free || 0;
  const total = Object.values(node.counts).reduce((sum, count) => sum + count, 0);
  const element = h(
    "article",
    { class: node.why ? "node off" : "node", "aria-label": node.name },
    h(
      "header",
      {},
      h("button", { type: "button", class: "name", on: { click: () => open("node", node.name) } }, node.name),
      h("span", { class: "free" }, total ? t("node.free", { free, total }) : t("node.empty")),
      node.why ? h("span", { class: "why" }, node.why) : null,
    ),
    regions,
  );
  const first = element.querySelector("button.tile");
  if (first) first.tabIndex = 0;
  return element;
}

// Arrow keys go from tile to tile; Tab goes from node to node.
export function arrows(event) {
  const here = event.target;
  if (!(here instanceof HTMLElement) || !here.matches("button.tile")) return;
  const node = here.closest("article.node");
  const tiles = [...node.querySelectorAll("button.tile")];
  let next = null;
  if (event.key === "ArrowRight") next = tiles[tiles.indexOf(here) + 1];
  else if (event.key === "ArrowLeft") next = tiles[tiles.indexOf(here) - 1];
  else if (event.key === "Home") next = tiles[0];
  else if (event.key === "End") next = tiles[tiles.length - 1];
  else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    const nodes = [...document.querySelectorAll("article.node")];
    const other = nodes[nodes.indexOf(node) + (event.key === "ArrowDown" ? 1 : -1)];
    const others = other ? [...other.querySelectorAll("button.tile")] : [];
    next = others[Math.min(tiles.indexOf(here), others.length - 1)];
  } else return;
  event.preventDefault();
  if (!next) return;
  here.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}

export function bar(counts) {
  const total = Object.values(counts).reduce((sum, count) => sum + count, 0);
  const words = STATES.filter((state) => counts[state]).map((state) => `${t("state." + state)} ${counts[state]}`);
  const parts = STATES.filter((state) => counts[state]).map((state) => {
    const part = h("span", { class: `part ${state}` });
    part.style.flexGrow = String(counts[state]);
    return part;
  });
  return h("span", { class: "bar", role: "img", "aria-label": words.join(", ") || t("bar.none"), title: words.join(", ") }, total ? parts : null);
}

export function beforeAfter(fleet, open) {
  if (!fleet.nodes.length) return h("p", {}, t("whatif.same"));
  return [
    fleet.nodes.map((pair) => {
      const old = new Map((pair.before?.devices || []).map((device) => [device.id, device]));
      const differs = (device) => {
        const was = old.get(device.id);
        return !was || was.state !== device.state || String(was.claims) !== String(device.claims);
      };
      return h(
        "div",
        { class: "pair" },
        h("div", {}, h("h4", {}, t("whatif.before")), pair.before ? nodeCard(pair.before, open) : h("p", { class: "quiet" }, t("whatif.absent"))),
        h("div", {}, h("h4", {}, t("whatif.after")), pair.after ? nodeCard(pair.after, open, { differs }) : h("p", { class: "quiet" }, t("whatif.absent"))),
      );
    }),
    fleet.more ? h("p", { class: "quiet" }, t("whatif.more", { n: fleet.more })) : null,
  ];
}
