// Which language does the page speak? One catalogue per language in lang/; what the engine says stays English.

const LANGUAGES = { en: "English", ko: "한국어" };
let catalogue = {};
export let language = "en";

export async function load(wanted) {
  language = wanted in LANGUAGES ? wanted : "en";
  catalogue = await (await fetch(`/static/lang/${language}.json`)).json();
  document.documentElement.lang = language;
}

export function preferred() {
  const kept = localStorage.getItem("language");
  if (kept) return kept;
  return (navigator.languages || []).some((name) => name.startsWith("ko")) ? "ko" : "en";
}

export function languages() {
  return Object.entries(LANGUAGES);
}

export function t(key, values) {
  const text = catalogue[key] ?? key;
  return text.replace(/\{(\w+)\}/g, (_, name) => (values && name in values ? String(values[name]) : ""));
}

export function number(value) {
  return new Intl.NumberFormat(language).format(value);
}
