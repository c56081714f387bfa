// Everything can be read without this file. It adds: a theme switch, a filter for tables, a chooser of pairs.
"use strict";

const theme = document.getElementById("theme");
const kept = () => { try { return localStorage.getItem("theme"); } catch { return null; } };
const keep = (value) => { try { localStorage.setItem("theme", value); } catch { /* pages opened from a folder may not store */ } };

if (kept()) document.documentElement.dataset.theme = kept();
if (theme) {
  theme.hidden = false;
  theme.addEventListener("click", () => {
    const dark = document.documentElement.dataset.theme === "dark" ||
      (!document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
    document.documentElement.dataset.theme = dark ? "light" : "dark";
    keep(document.documentElement.dataset.theme);
  });
}

for (const form of document.querySelectorAll("form.find[data-table]")) {
  form.hidden = false;
  const rows = [...document.querySelectorAll(`#${form.dataset.table} tbody tr`)];
  const said = form.querySelector("[role=status]");
  const filter = () => {
    const words = form.elements.words.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const text = (row.dataset.search || row.textContent).toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      if (!row.hidden) shown += 1;
    }
    said.textContent = words.length ? `${shown} of ${rows.length}` : "";
  };
  form.addEventListener("input", filter);
  form.addEventListener("submit", (event) => event.preventDefault());
  const asked = new URLSearchParams(location.search).get("q");
  if (asked) { form.elements.words.value = asked; filter(); }
}

for (const form of document.querySelectorAll("form.find[data-pairs]")) {
  const pairs = JSON.parse(form.dataset.pairs);
  form.hidden = false;
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const [left, right] = [form.elements.left.value, form.elements.right.value];
    const found = pairs.find(([a, b]) => (a === left && b === right) || (a === right && b === left));
    if (found) location.href = `compare/${found[0]}-${found[1]}.html`;
    else form.querySelector("[role=status]").textContent = "Choose two different backends.";
  });
}
