// The pages work without it. It adds keys, and the rows that arrive while a page is open.
"use strict";

// An element with data-key is pressed by that key, unless a text is being written.
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const isWriting = event.target.closest("input:not([type=checkbox]):not([type=radio]), textarea, select, [contenteditable]");
  const menu = event.target.closest("details[open]");
  if (event.key === "Escape" && menu) {
    menu.open = false;
    menu.querySelector("summary").focus();
  }
  if (isWriting) return;
  for (const element of document.querySelectorAll("[data-key]")) {
    if (element.dataset.key === event.key) {
      event.preventDefault();
      element.click();
      // At once: what is typed next belongs into the field.
      const opened = element.closest("details.fix");
      if (opened?.open) prepare(opened);
      return;
    }
  }
});

// An opened menu is ready for the new text, and only one is open.
document.addEventListener("toggle", (event) => {
  const menu = event.target;
  if (!menu.matches("details.fix") || !menu.open) return;
  for (const other of document.querySelectorAll("details.fix[open]")) if (other !== menu) other.open = false;
  prepare(menu);
}, true);

function prepare(menu) {
  const field = menu.querySelector("textarea, input:not([type=hidden])");
  if (field && !menu.contains(document.activeElement?.closest("form"))) {
    field.focus({ preventScroll: true });
    if (field.select) field.select();
  }
}

document.documentElement.classList.add("has-script");

// A choice of a filter is sent at once.
for (const field of document.querySelectorAll("[data-submit]")) {
  field.addEventListener("change", () => field.form.requestSubmit());
}

// Rows that the server sends while the page is open: each replaces the one with its id, or comes first.
const feed = document.querySelector("[data-stream]");
if (feed) {
  const rowsMax = 200;
  const pause = document.querySelector("#pause");
  const waiting = new Map();
  const parse = (html) => new DOMParser().parseFromString(html, "text/html").body;
  const show = (row) => {
    if (feed.hidden) {
      // The first turn of an empty store: the server knows what the page looks like now.
      location.reload();
      return;
    }
    const element = parse(row.html).firstElementChild;
    const known = document.getElementById(row.id);
    if (!known) {
      element.classList.add("fresh");
      feed.prepend(element);
    } else if (known.outerHTML !== element.outerHTML && !known.contains(document.activeElement)) {
      known.replaceWith(element);
    }
    document.querySelector("#strip")?.replaceChildren(...parse(row.strip).childNodes);
    while (feed.children.length > rowsMax) feed.lastElementChild.remove();
  };
  const stream = new EventSource(feed.dataset.stream);
  stream.addEventListener("row", (event) => {
    const row = JSON.parse(event.data);
    if (pause?.getAttribute("aria-pressed") === "true") {
      waiting.set(row.id, row);
      pause.textContent = `Resume (${waiting.size})`;
    } else {
      show(row);
    }
  });
  if (pause) {
    pause.hidden = false;
    pause.addEventListener("click", () => {
      const paused = pause.getAttribute("aria-pressed") !== "true";
      pause.setAttribute("aria-pressed", String(paused));
      pause.textContent = paused ? "Resume" : "Pause";
      for (const row of waiting.values()) show(row);
      waiting.clear();
    });
  }
  // Another page follows, and nothing may load this one again meanwhile.
  for (const leaving of ["submit", "pagehide"]) addEventListener(leaving, () => stream.close());
}
