// A filter applies when it is chosen; without the script a button does that.
"use strict";

document.documentElement.classList.add("scripted");
for (const field of document.querySelectorAll("[data-submit]")) {
  field.addEventListener("change", () => field.form.requestSubmit());
}
for (const form of document.querySelectorAll("form.facets:not(.keep)")) {
  // What is empty is left out of the address.
  form.addEventListener("submit", () => {
    for (const field of form.elements) if (!field.value) field.disabled = true;
  });
}
// The key in data-focus moves the cursor into a field.
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select")) return;
  const field = document.querySelector(`[data-focus="${CSS.escape(event.key)}"]`);
  if (field) {
    event.preventDefault();
    field.focus();
  }
});
