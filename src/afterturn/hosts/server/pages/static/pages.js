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
      return;
    }
  }
});

// An opened menu is ready for the new text, and only one is open.
document.addEventListener("toggle", (event) => {
  const menu = event.target;
  if (!menu.matches("details.fix") || !menu.open) return;
  for (const other of document.querySelectorAll("details.fix[open]")) if (other !== menu) other.open = false;
  const field = menu.querySelector("textarea, input:not([type=hidden])");
  if (field) {
    field.focus({ preventScroll: true });
    if (field.select) field.select();
  }
}, true);
