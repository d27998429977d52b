// What is shown? A hash names the view and its filters, so that every state of the page has an address of its own.

import { get } from "./api.js";
import { h, replace } from "./dom.js";
import * as editor from "./editor.js";
import * as fleet from "./fleet.js";
import { detail } from "./detail.js";
import { language, languages, load, preferred, t } from "./texts.js";
import { arrows } from "./tiles.js";
import * as time from "./time.js";
import * as waiting from "./waiting.js";

const VIEWS = { fleet, waiting, time, editor };
const FEW = 2;
const THEMES = ["auto", "light", "dark"];
let state = null;
let opener = null;
let live = null;

export function place() {
  const [view, query] = location.hash.slice(1).split("?");
  return { view: view in VIEWS ? view : "fleet", query: Object.fromEntries(new URLSearchParams(query || "")) };
}

function go(changes, view = place().view) {
  const now = place();
  const query = Object.fromEntries(
    Object.entries({ ...(view === now.view ? now.query : {}), ...changes }).filter(([, value]) => value),
  );
  const text = new URLSearchParams(query).toString();
  location.hash = `${view}${text ? "?" + text : ""}`;
}

function open(kind, name, namespace = "") {
  opener = document.activeElement;
  const slash = name.indexOf("/");
  if ((kind === "pod" || kind === "claim") && !namespace && slash > 0) {
    namespace = name.slice(0, slash);
    name = name.slice(slash + 1);
  }
  go({ open: [kind, namespace, name].join("|") });
}

function close() {
  go({ open: "" });
  const back = opener;
  setTimeout(() => back?.isConnected && back.focus(), 0);
}

const context = { go, open, place, state: () => state, say };

function say(text) {
  document.getElementById("live").textContent = text;
}

function theme(name) {
  if (name === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  localStorage.setItem("theme", name);
}

function header() {
  const here = place();
  const chosen = localStorage.getItem("theme") || "auto";
  return h(
    "header",
    { class: "top" },
    h("span", { class: "brand" }, "Dragoman"),
    h(
      "nav",
      { "aria-label": t("nav.label") },
      Object.keys(VIEWS).map((view) =>
        h(
          "a",
          { href: `#${view}`, "aria-current": view === here.view ? "page" : undefined },
          t(`nav.${view}`),
          view === "waiting" && state.pending ? [" ", h("span", { class: "badge" }, String(state.pending))] : null,
        ),
      ),
    ),
    h("span", { class: "title" }, state.title, " · ", state.actions ? t("top.actions") : t("top.readonly")),
    h(
      "select",
      {
        "aria-label": t("top.language"),
        on: {
          change: async (event) => {
            localStorage.setItem("language", event.target.value);
            await load(event.target.value);
            show();
          },
        },
      },
      languages().map(([code, name]) => h("option", { value: code, selected: code === language, lang: code }, name)),
    ),
    h(
      "select",
      { "aria-label": t("top.theme"), on: { change: (event) => theme(event.target.value) } },
      THEMES.map((name) => h("option", { value: name, selected: name === chosen }, t(`theme.${name}`))),
    ),
  );
}

function notes() {
  const lines = [...state.notes, ...(state.problem ? [t("top.problem", { problem: state.problem })] : [])];
  if (!lines.length) return null;
  const shown = lines.map((line) => h("p", {}, line.replace(/^note: /, "")));
  if (lines.length <= FEW) return h("div", { class: "notes" }, shown);
  return h("details", { class: "notes" }, h("summary", {}, t("top.notes", { n: lines.length })), shown);
}

let shown = "";

async function show(quietly = false) {
  const here = place();
  const page = document.getElementById("page");
  const view = JSON.stringify([here.view, language]);
  if (view !== shown || !page.querySelector("main")) {
    shown = view;
    replace(
      page,
      h("a", { class: "skip", href: "#main", on: { click: (e) => { e.preventDefault(); document.getElementById("main").focus(); } } }, t("nav.skip")),
      h("div", { id: "top" }),
      h("div", { class: "frame", id: "frame" }, h("main", { id: "main", tabindex: "-1" }), h("div", { id: "side" })),
      h("p", { id: "live", class: "skip", role: "status" }),
    );
    page.addEventListener("keydown", arrows);
    document.title = `${t(`nav.${here.view}`)} · Dragoman`;
    quietly = false;
  }
  const focused = document.activeElement?.closest?.("#top");
  if (!focused) replace(document.getElementById("top"), header(), notes());
  const main = document.getElementById("main");
  try {
    await VIEWS[here.view].show(main, here.query, context, quietly);
  } catch (error) {
    replace(main, h("p", { class: "error", role: "alert" }, error.message));
  }
  await side(here.query.open || "");
}

async function side(wanted) {
  const frame = document.getElementById("frame");
  const place = document.getElementById("side");
  frame.classList.toggle("open", Boolean(wanted));
  if (!wanted) {
    replace(place);
    return;
  }
  const isNew = place.dataset.shown !== wanted || !place.firstChild;
  place.dataset.shown = wanted;
  const [kind, namespace, name] = wanted.split("|");
  const panel = await detail(kind, namespace, name, context, close);
  if (document.getElementById("side") !== place || place.dataset.shown !== wanted) return;
  const inside = place.contains(document.activeElement);
  replace(place, panel);
  if (isNew || inside) panel.querySelector("h2").focus();
}

// One refresh at a time: states that come while one is made are shown by the next.
let refreshing = false;
let again = false;

async function refresh() {
  again = refreshing;
  if (refreshing) return;
  refreshing = true;
  try {
    do {
      again = false;
      state = await get("state");
      if (!document.querySelector("form:focus-within, .whatif")) await show(true);
    } while (again);
  } finally {
    refreshing = false;
  }
}

function follow() {
  live?.close();
  live = new EventSource(`/api/updates?number=${state.number}`);
  live.onmessage = (event) => {
    if (Number(event.data) !== state.number) refresh();
  };
}

addEventListener("hashchange", () => show(true));
addEventListener("keydown", (event) => {
  if (event.key === "Escape" && place().query.open) close();
});

theme(localStorage.getItem("theme") || "auto");
await load(preferred());
try {
  state = await get("state");
  await show();
  follow();
  document.documentElement.dataset.ready = "yes";
} catch (error) {
  replace(document.getElementById("page"), h("p", { class: "error", role: "alert" }, error.message));
}
